// configs/architectures/NAME.yaml
#include <algorithm>

#include "config/map_reader.hpp"
#include "config/read.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {
namespace {

void read_limits(const Node& node, ArchitectureSpec& spec, Diagnostics& diagnostics) {
  const MapReader limits(node, kLimitsFields, diagnostics);
  const auto read = [&](std::string_view key) { return static_cast<int>(limits.integer(key).value_or(0)); };
  spec.registers_per_multiprocessor = read("registers_per_multiprocessor");
  spec.registers_per_thread = read("registers_per_thread");
  spec.threads_per_block = read("threads_per_block");
  spec.shared_memory_per_block = read("shared_memory_per_block");
}

void read_build(const Node& node, ArchitectureSpec& spec, Diagnostics& diagnostics) {
  const MapReader build(node, kBuildFields, diagnostics);
  spec.build_toolkit = build.text("toolkit").value_or("");
  spec.build_measured = build.flag("measured").value_or(false);
  const std::vector<Node>* kernels = build.list("kernels");
  if (kernels == nullptr) return;
  std::array<bool, std::size(kHeadDimBuckets)> seen{};
  bool readable = true;
  for (const Node& entry : *kernels) {
    const MapReader cost(entry, kKernelCostFields, diagnostics);
    const std::optional<std::int64_t> head_dim = cost.integer("head_dim");
    const std::optional<double> seconds = cost.number("seconds");
    const std::optional<std::int64_t> bytes = cost.integer("bytes");
    if (!head_dim) readable = false;
    if (!head_dim || !seconds || !bytes) continue;
    const auto bucket = static_cast<std::size_t>(
        std::find(std::begin(kHeadDimBuckets), std::end(kHeadDimBuckets), *head_dim) - std::begin(kHeadDimBuckets));
    if (seen[bucket])
      diagnostics.add(Rule::duplicate_name, cost.at("head_dim"),
                      "head_dim " + std::to_string(*head_dim) + " has its cost twice");
    seen[bucket] = true;
    spec.costs[bucket] = {*seconds, *bytes};
  }
  for (std::size_t i = 0; i < seen.size() && readable; ++i)
    if (!seen[i])
      diagnostics.add(Rule::missing_key, build.at("kernels"),
                      "`kernels` has no entry for head_dim " + std::to_string(kHeadDimBuckets[i]));
}

}  // namespace

std::optional<ArchitectureSpec> read_architecture(const SourceFile& source, Diagnostics& diagnostics) {
  const std::optional<Node> root = parse_document(source, diagnostics);
  if (!root) return std::nullopt;
  const std::size_t before = diagnostics.size();
  const MapReader file(*root, kArchitectureFields, diagnostics);
  ArchitectureSpec spec;
  spec.at = file.at("architecture");
  const auto architecture = file.word("architecture");
  if (architecture) spec.architecture = static_cast<Architecture>(*architecture);
  spec.compute_capability = static_cast<int>(file.integer("compute_capability").value_or(0));
  // `sm86` is the code that GPUs of compute capability 8.6 run.
  const std::string capability = std::to_string(spec.compute_capability);
  if (spec.compute_capability != 0 && architecture && word(spec.architecture) != "sm" + capability)
    diagnostics.add(Rule::out_of_range, file.at("compute_capability"),
                    "`compute_capability` is " + capability + ", and this is the file of `" +
                        std::string(word(spec.architecture)) + "`",
                    {"it is the number in the architecture's name"});
  spec.gpus = file.texts("gpus").value_or(std::vector<std::string>{});
  file.text("source");
  if (const Node* limits = file.find("limits")) read_limits(*limits, spec, diagnostics);
  if (const Node* build = file.find("build")) read_build(*build, spec, diagnostics);
  // Limits that are half known would make nonsense of the checks that use them.
  return diagnostics.size() == before ? std::optional(spec) : std::nullopt;
}

}  // namespace flashdma_bwd::generator
