// The choice of a kernel as text.
#include "selection/explain.hpp"

#include <flashdma_bwd/kernel_resources.hpp>
#include <limits>
#include <utility>

#include "selection/configuration_name.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd {
namespace {

std::string number(std::int64_t value) {
  return std::to_string(value);
}
std::string capability_text(int capability) {
  return number(capability / 10) + '.' + number(capability % 10);
}
std::string yes_or_no(bool value) {
  return value ? "yes" : "no";
}

std::string range_text(const Range& range) {
  if (range.high == std::numeric_limits<std::int64_t>::max()) return "at least " + number(range.low);
  return number(range.low) + " ... " + number(range.high);
}

template <class Enum>
std::string set_text(EnumSet<Enum> set) {
  std::string text;
  const auto words = words_of(Enum{});
  for (std::size_t i = 0; i < words.size(); ++i)
    if (set.contains(static_cast<Enum>(i))) text += (text.empty() ? "" : " or ") + std::string(words[i]);
  return text;
}

/// A failed condition: its name, what the row expects, what the problem has.
struct Mismatch {
  std::string_view condition;
  std::string expected;
  std::string actual;
};

Mismatch mismatch(Condition condition, const Row& row, const Problem& problem, const DeviceTraits& device) {
  const When& when = row.when;
  switch (condition) {
    case Condition::none:
      break;
    case Condition::head_dim:
      return {"head_dim", "bucket " + number(when.head_dim),
              number(problem.head_dim) + ", which is in bucket " + number(head_dim_bucket(problem.head_dim))};
    case Condition::data_type:
      return {"data_type", set_text(when.data_types), std::string(word(problem.data_type))};
    case Condition::bias:
      return {"bias", set_text(when.biases), std::string(word(problem.bias))};
    case Condition::layout:
      return {"layout", set_text(when.layouts), std::string(word(problem.layout))};
    case Condition::bias_copies:
      return {"bias_copies", yes_or_no(!problem.bias_copies), yes_or_no(problem.bias_copies)};
    case Condition::softcap:
      return {"softcap", std::string(word(when.softcap)), yes_or_no(problem.softcap)};
    case Condition::causal:
      return {"causal", std::string(word(when.causal)), yes_or_no(problem.causal)};
    case Condition::deterministic:
      return {"deterministic", std::string(word(when.deterministic)), yes_or_no(problem.deterministic)};
    case Condition::masked:
      return {"masked", std::string(word(when.masked)), yes_or_no(problem.masked)};
    case Condition::seqlen_q:
      return {"seqlen_q", range_text(when.seqlen_q),
              number(queries_of_key(problem)) + (queries_of_key(problem) < problem.seqlen_q ? " in the window" : "")};
    case Condition::seqlen_k:
      return {"seqlen_k", range_text(when.seqlen_k), number(problem.seqlen_k)};
    case Condition::work_items_per_sm:
      return {"work_items_per_sm", range_text(when.work_items_per_sm), number(work_items_per_sm(problem, device))};
    case Condition::mask_density:
      return {"mask_density", range_text(when.mask_density), number(problem.mask_density)};
    case Condition::shared_memory:
      return {"shared memory", "at least " + number(shared_memory_bytes(configuration_of(row, problem))) + " bytes",
              number(device.shared_memory_per_block) + " on this GPU"};
  }
  return {};
}

/// How rows without even the right head dim are shown: not at all, they are counted.
std::string among(Architecture architecture, const DeviceTraits& device, const Problem& problem,
                  std::span<const Row> rows, const SelectionResult& result) {
  std::string text;
  int other_buckets = 0;
  int candidates = 0;
  for (const Row& row : rows) {
    if (row.architecture != architecture) continue;
    const Condition failed = first_failed_condition(row, problem, device);
    if (failed == Condition::head_dim) {
      ++other_buckets;
      continue;
    }
    ++candidates;
    text += "  " + std::string(row.file) + ':' + number(row.line) + ": " + tile_name(row.use) + ": ";
    if (&row == result.row) {
      text += "chosen, every condition holds; " + std::string(word(row.provenance)) + ": " +
              std::string(row.provenance_text) + '\n';
      break;
    }
    const Mismatch difference = mismatch(failed, row, problem, device);
    text += std::string(difference.condition) + " must be " + difference.expected + ", is " + difference.actual + '\n';
  }
  std::string heading = std::string(word(architecture)) + ": ";
  if (candidates == 0)
    heading += "no row for head dim bucket " + number(head_dim_bucket(problem.head_dim));
  else
    heading +=
        "rows for head dim bucket " + number(head_dim_bucket(problem.head_dim)) + ", the first that holds decides";
  if (other_buckets > 0) heading += " (" + number(other_buckets) + " rows for other buckets are left out)";
  return heading + '\n' + text;
}

std::string beginning(const DeviceTraits& device, const Problem& problem) {
  return "problem: " + problem_description(problem) + "\ndevice: " + device_text(device) +
         "\nwork items per multiprocessor: " + number(work_items_per_sm(problem, device)) + '\n';
}

std::string conclusion(const SelectionResult& result, const DeviceTraits& device, const Problem& problem,
                       ArchitectureSet compiled) {
  if (result.status != SelectionStatus::ok)
    return "no kernel: " + selection_failure(result.status, device, problem, compiled) + '\n';
  return "kernel: " + configuration_name(result.config) + '\n';
}

std::string step_text(const FallbackStep& step) {
  const std::string tier = "tier " + number(step.tier) + ": ";
  if (step.tier == 0) return tier + "the GPU's own table, ";
  return tier + (step.form == CodeForm::ptx ? "PTX for newer GPUs, " : "an older table of the same generation, ");
}

}  // namespace

std::string architecture_list(ArchitectureSet set) {
  std::string text;
  for (const Architecture architecture : kArchitectures)
    if (set.contains(architecture)) text += (text.empty() ? "" : ", ") + std::string(word(architecture));
  return text.empty() ? "none" : text;
}

std::string problem_description(const Problem& problem) {
  std::string text = std::string(word(problem.data_type)) + ", head_dim " + number(problem.head_dim) + ", batch " +
                     number(problem.batch) + ", heads " + number(problem.heads) + ", heads_kv " +
                     number(problem.heads_kv) + ", seqlen_q " + number(problem.seqlen_q) + ", seqlen_k " +
                     number(problem.seqlen_k) + ", bias " + std::string(word(problem.bias));
  if (problem.bias == BiasKind::tile)
    text += problem.bias_copies ? " that tensor copies move" : " that tensor copies cannot move";
  if (problem.masked)
    text += ", mask " + std::string(word(problem.layout)) +
            (problem.mask_density == 1000 ? std::string(" of unknown density or full")
                                          : " with " + number(problem.mask_density) + " of 1000 pairs active");
  for (const auto& [holds, name] : {std::pair{problem.causal, ", causal"},
                                    {problem.softcap, ", softcap"},
                                    {problem.deterministic, ", deterministic"}})
    if (holds) text += name;
  if (problem.window > 0) text += ", window of " + number(problem.window) + " queries a key";
  return text;
}

std::string device_text(const DeviceTraits& device) {
  return "compute capability " + capability_text(device.compute_capability) + ", " + number(device.sm_count) +
         " multiprocessors, " + number(device.shared_memory_per_block) + " bytes of shared memory for a block";
}

std::string selection_failure(SelectionStatus status, const DeviceTraits& device, const Problem& problem,
                              ArchitectureSet compiled) {
  const std::string capability = "compute capability " + capability_text(device.compute_capability);
  switch (status) {
    case SelectionStatus::ok:
      return {};
    case SelectionStatus::unsupported_head_dim:
      return "head_dim is " + number(problem.head_dim) +
             ": it must be a multiple of 8 in 8 ... 256. Pad the tensors' rows with zeros to the next multiple of 8";
    case SelectionStatus::unsupported_architecture: {
      if (device.compute_capability < kOldestComputeCapability)
        return "the GPU has " + capability +
               ": the oldest with kernels is 8.0. Use a newer GPU, or the CPU backend flashdma_bwd_backward_reference";
      std::string wanted;
      for (const FallbackStep& step : kFallbackChain)
        if (applies(step, device.compute_capability))
          wanted += (wanted.empty() ? "" : " or ") + std::string(word(step.architecture));
      if (architecture_list(compiled) == "none")
        return "the GPU has " + capability +
               " and this build has no kernels at all: build with FLASHDMA_BWD_KERNELS=ON and "
               "FLASHDMA_BWD_ARCHITECTURES containing " +
               wanted;
      return "the GPU has " + capability + " and this build has kernels of " + architecture_list(compiled) +
             ", which it cannot run: build with FLASHDMA_BWD_ARCHITECTURES containing " + wanted;
    }
    case SelectionStatus::no_row: {
      ArchitectureSet asked{0};
      for (const FallbackStep& step : kFallbackChain)
        if (applies(step, device.compute_capability) && compiled.contains(step.architecture))
          asked.bits |= 1u << static_cast<unsigned>(step.architecture);
      return "no row of " + architecture_list(asked) + ", which a GPU of " + capability +
             " can run, admits this problem and fits " + number(device.shared_memory_per_block) +
             " bytes of shared memory: add a row with a smaller tile to configs/tables/ and rebuild";
    }
  }
  return {};
}

std::string explain_selection(const DeviceTraits& device, const Problem& problem, std::span<const Row> rows,
                              ArchitectureSet compiled) {
  const SelectionResult result = select_kernel(device, problem, rows, compiled);
  std::string text = beginning(device, problem);
  if (result.status != SelectionStatus::unsupported_head_dim) {
    for (const FallbackStep& step : kFallbackChain) {
      if (!applies(step, device.compute_capability)) continue;
      text += step_text(step);
      if (!compiled.contains(step.architecture)) {
        text += std::string(word(step.architecture)) + ": not compiled into this build\n";
        continue;
      }
      text += among(step.architecture, device, problem, rows, result);
      if (result.status == SelectionStatus::ok && result.config.architecture == step.architecture) break;
    }
  }
  return text + conclusion(result, device, problem, compiled);
}

std::string explain_among(Architecture architecture, const DeviceTraits& device, const Problem& problem,
                          std::span<const Row> rows) {
  const SelectionResult result = select_among(architecture, device, problem, rows);
  std::string text = beginning(device, problem);
  if (result.status != SelectionStatus::unsupported_head_dim)
    text += among(architecture, device, problem, rows, result);
  return text + conclusion(result, device, problem, ArchitectureSet{1u << static_cast<unsigned>(architecture)});
}

}  // namespace flashdma_bwd
