// generated/kernels/ARCHITECTURE/UNIT.cu: a banner, the rows that it comes from, one include, one statement a kernel.
#include "emit/cpp_text.hpp"
#include "emit/emit.hpp"
#include "selection/row_text.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {
namespace {

std::string upper(std::string_view word) {
  std::string text(word);
  for (char& c : text)
    if ('a' <= c && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  return text;
}

/// A backslash at its end would make the next line a part of it, to some compilers also one before blanks.
std::string comment(std::string text) {
  text.erase(text.find_last_not_of(" \t\v\f") + 1);
  if (text.ends_with('\\')) text += '.';
  return "// " + text + '\n';
}

}  // namespace

EmittedFile emit_kernel_unit(const TranslationUnit& unit) {
  const TileConfig& tile = unit.kernels.front().config.tile;
  const std::string_view family = word(tile.family);
  std::string text =
      "// " + std::string(kBannerMark) + ". Do not edit: edit the row, then run `flashdma-gen generate`.\n";
  for (const Row& row : unit.rows)
    text += comment(std::string(row.file) + ':' + std::to_string(row.line)) + comment("  " + row_text(row));
  text += "#include \"" + std::string(family) + "/instantiate.cuh\"\n";
  text += "\nnamespace flashdma_bwd::kernels {\nconstexpr TileConfig kTile" + cpp_tile(tile) +
          ";\n}  // namespace flashdma_bwd::kernels\n";
  for (const PlannedKernel& kernel : unit.kernels)
    text += "\nFLASHDMA_BWD_" + upper(family) + "_KERNEL(\n    " + kernel.name + ",\n    " +
            cpp_config(kernel.config, "kTile") + ")\n";
  return {unit.path, text};
}

}  // namespace flashdma_bwd::generator
