// generated/dispatch_table.inc: the rows of every table and the kernels, as constant data.
#include <map>

#include "emit/cpp_text.hpp"
#include "emit/emit.hpp"
#include "selection/configuration_name.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {
namespace {

/// The statements of the kernels of each architecture, under the macro by which a build says that it compiles them.
std::string by_architecture(const Plan& plan, auto&& statement) {
  std::string text;
  for (const Architecture architecture : kArchitectures) {
    std::string lines;
    for (const TranslationUnit& unit : plan.units)
      if (unit.architecture == architecture)
        for (const PlannedKernel& kernel : unit.kernels) lines += statement(kernel);
    if (lines.empty()) continue;
    const std::string number(word(architecture).substr(2));
    text += "#if FLASHDMA_BWD_WITH_SM" + number + '\n' + lines + "#endif\n";
  }
  return text;
}

std::string tiles(const Plan& plan) {
  std::map<std::string, TileConfig> all;
  for (const Row& row : plan.rows) all.emplace(tile_name(row.use), row.use);
  for (const TranslationUnit& unit : plan.units)
    for (const PlannedKernel& kernel : unit.kernels) all.emplace(tile_name(kernel.config.tile), kernel.config.tile);
  std::string text = "namespace tiles {\n";
  for (const auto& [name, tile] : all) text += "inline constexpr TileConfig " + name + cpp_tile(tile) + ";\n";
  return text + "}  // namespace tiles\n";
}

std::string rows(const Plan& plan) {
  std::string text = "inline constexpr Row kRows[] = {\n";
  for (const Row& row : plan.rows)
    text += "    {.architecture = Architecture::" + std::string(word(row.architecture)) +
            ",\n     .when = " + cpp_when(row.when) + ",\n     .use = tiles::" + tile_name(row.use) +
            ",\n     .provenance = ProvenanceKind::" +
            (row.provenance == ProvenanceKind::derived ? "derived" : "measured") +
            ",\n     .provenance_text = " + cpp_string(row.provenance_text) +
            ",\n     .file = " + cpp_string(row.file) + ",\n     .line = " + std::to_string(row.line) + "},\n";
  return text + "};\n";
}

}  // namespace

EmittedFile emit_dispatch_table(const Plan& plan) {
  std::string text = "// " + std::string(kBannerMark) +
                     ". Do not edit: edit configs/, then run `flashdma-gen generate`.\n"
                     "//\n"
                     "// The rows of every table and the kernels of the architectures that this build compiles "
                     "(FLASHDMA_BWD_WITH_SM80=1 and so on).\n"
                     "// One .cpp includes this, after flashdma_bwd/kernel_table.hpp and common/kernel_entry.hpp.\n\n";
  text += by_architecture(
      plan, [](const PlannedKernel& kernel) { return "FLASHDMA_BWD_DECLARE_KERNEL(" + kernel.name + ")\n"; });
  text += "\nnamespace flashdma_bwd::generated {\n\n";
  text += "inline constexpr std::string_view kTableHash = \"" + table_hash(plan.rows) + "\";\n";
  text += "inline constexpr std::string_view kProfile = " + cpp_string(plan.profile) + ";\n\n";
  text += tiles(plan) + '\n';
  text += "// First match decides, within an architecture and in this order.\n" + rows(plan);
  text += "inline constexpr std::size_t kRowCount = " + std::to_string(plan.rows.size()) + ";\n\n";
  text +=
      "// By name. The last entry is no kernel: it keeps the array from being empty.\n"
      "inline constexpr KernelEntry kKernels[] = {\n";
  text += by_architecture(plan, [](const PlannedKernel& kernel) {
    return "FLASHDMA_BWD_KERNEL_ENTRY(\n    " + kernel.name + ",\n    " +
           cpp_config(kernel.config, "tiles::" + tile_name(kernel.config.tile)) + "),\n";
  });
  text += "KernelEntry{},\n};\n";
  text += "inline constexpr std::size_t kKernelCount = sizeof(kKernels) / sizeof(kKernels[0]) - 1;\n\n";
  text += "}  // namespace flashdma_bwd::generated\n";
  return {"dispatch_table.inc", text};
}

}  // namespace flashdma_bwd::generator
