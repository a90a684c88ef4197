// Fuzz target for the YAML front end: any bytes give a model or findings, never a crash, a hang or a leak; and what a
// model without findings becomes can be emitted, its comments ending where their lines end.
//
// With libFuzzer (FLASHDMA_BWD_LIBFUZZER) this is an ordinary target. Without, the program damages the files that it is
// given in ways drawn from a fixed seed, a bounded number of times:
//     fuzz_table <mutations in all> <file or folder>...
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <string>

#include "config/read.hpp"
#include "diagnostics/render.hpp"
#include "emit/emit.hpp"
#include "plan/plan.hpp"
#include "validation/validate.hpp"

namespace {

using namespace flashdma_bwd::generator;

ArchitectureSpec some_limits() {
  ArchitectureSpec spec;
  spec.registers_per_multiprocessor = 65536;
  spec.registers_per_thread = 255;
  spec.threads_per_block = 1024;
  spec.shared_memory_per_block = 166912;
  return spec;
}

/// Emits a table's kernels as `generate` does.
void emit_table(const Table& table) {
  Configuration configuration;
  configuration.tables = {table};
  Profile everything;
  everything.name = "everything";
  everything.head_dims.assign(std::begin(flashdma_bwd::kHeadDimBuckets), std::end(flashdma_bwd::kHeadDimBuckets));
  everything.data_types.bits = everything.biases.bits = everything.softcap.bits = ~0u;
  for (const EmittedFile& file : emit(make_plan(configuration, everything)))
    if (file.path.ends_with(".cu") && file.text.find("\\\n") != std::string::npos) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const SourceFile source{"fuzz.yaml", "fuzz.yaml", std::string(reinterpret_cast<const char*>(data), size)};
  Diagnostics diagnostics;
  if (const std::optional<Table> table = read_table(source, diagnostics)) {
    validate_resources(*table, some_limits(), diagnostics);
    if (table->complete) validate_coverage(*table, diagnostics);
    if (diagnostics.empty()) emit_table(*table);
  }
  read_architecture(source, diagnostics);
  read_profile(source, diagnostics);
  render_text(diagnostics, {source}, true);
  render_json(diagnostics);
  return 0;
}

#if !defined(FLASHDMA_BWD_LIBFUZZER)

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <random>
#include <vector>

namespace {

namespace fs = std::filesystem;
using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t limit) {
  return static_cast<std::size_t>(random() % limit);
}

/// One damage: a byte, a stretch, a line or a token.
void mutate(std::string& text, const std::vector<std::string>& seeds, Random& random) {
  static const char* const kTokens[] = {"{",    "}",   "[",  "]",   ": ",    ", ",   "- ", "\n", "'",
                                        "\"",   "&a ", "*a", "!x ", "---\n", "..",   "0",  "-1", "99999999999999999999",
                                        "true", "~",   "#",  "\t",  "\xff",  "<<: ", "? ", "|\n"};
  const std::size_t at = text.empty() ? 0 : below(random, text.size());
  switch (below(random, 6)) {
    case 0:
      if (!text.empty()) text[at] = static_cast<char>(random());
      break;
    case 1:
      text.erase(at, below(random, 20) + 1);
      break;
    case 2:
      text.insert(at, kTokens[below(random, std::size(kTokens))]);
      break;
    case 3: {
      const std::string& other = seeds[below(random, seeds.size())];
      if (!other.empty()) text.insert(at, other.substr(below(random, other.size()), below(random, 60)));
      break;
    }
    case 4: {
      const std::size_t begin = text.rfind('\n', at), end = text.find('\n', at);
      if (begin != std::string::npos && end != std::string::npos) text.insert(end, text.substr(begin, end - begin));
      break;
    }
    default:
      text.resize(at);
      break;
  }
}

std::vector<std::string> read_seeds(int count, char** paths) {
  std::vector<fs::path> files;
  for (int i = 0; i < count; ++i) {
    if (!fs::is_directory(paths[i])) {
      files.emplace_back(paths[i]);
      continue;
    }
    for (const fs::directory_entry& entry : fs::directory_iterator(paths[i]))
      if (entry.path().extension() == ".yaml") files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  std::vector<std::string> seeds;
  for (const fs::path& file : files) {
    std::ifstream stream(file, std::ios::binary);
    seeds.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
  }
  return seeds;
}

int run(const std::string& text) {
  return LLVMFuzzerTestOneInput(reinterpret_cast<const std::uint8_t*>(text.data()), text.size());
}

}  // namespace

int main(int argc, char** argv) {
  const long mutations = argc > 2 ? std::strtol(argv[1], nullptr, 10) : 0;
  const std::vector<std::string> seeds = read_seeds(std::max(argc - 2, 0), argv + 2);
  if (mutations <= 0 || seeds.empty()) {
    std::fputs("usage: fuzz_table <mutations in all> <file or folder>...\n", stderr);
    return 2;
  }
  Random random(1);
  for (const std::string& seed : seeds) run(seed);
  for (long i = 0; i < mutations; ++i) {
    std::string text = seeds[below(random, seeds.size())];
    for (std::size_t n = below(random, 4) + 1; n > 0; --n) mutate(text, seeds, random);
    run(text);
  }
  std::printf("%ld damaged inputs from %zu files: no crash\n", mutations, seeds.size());
  return 0;
}

#endif
