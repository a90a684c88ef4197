// The lists of keys.
#include "config/fields.hpp"

#include <flashdma_bwd/kernel_table.hpp>
#include <iterator>

#include "selection/kernel_family.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {
namespace {

constexpr std::int64_t kHeadDims[] = {32, 64, 96, 128, 192, 256};
constexpr bool head_dims_are_buckets() {
  if (std::size(kHeadDims) != std::size(kHeadDimBuckets)) return false;
  for (std::size_t i = 0; i < std::size(kHeadDims); ++i)
    if (kHeadDims[i] != kHeadDimBuckets[i]) return false;
  return true;
}
static_assert(head_dims_are_buckets());

constexpr std::int64_t kBlockSizes[] = {32, 64, 128};
constexpr std::int64_t kWarpCounts[] = {4, 8};
constexpr std::int64_t kWarpShares[] = {1, 2, 4, 8};
constexpr std::int64_t kStageCounts[] = {1, 2};
constexpr std::int64_t kHopperBlockM[] = {64, 128};
constexpr std::int64_t kHopperBlockN[] = {96, 128};
constexpr std::int64_t kConsumerWarpgroups[] = {2};
constexpr std::int64_t kHopperStageCounts[] = {2, 3};
constexpr std::int64_t kHopperDOutStageCounts[] = {1, 2, 3};
constexpr std::int64_t kDsStageCounts[] = {1, 2, 4};
constexpr std::int64_t kMostSms = 100000;

constexpr std::span<const std::string_view> words_of_one(KernelFamily family) {
  return std::span(kFamilyWords).subspan(static_cast<std::size_t>(family), 1);
}

using enum FieldType;

constexpr Field kArchitecture[] = {
    {.name = "architecture", .type = word, .required = true, .words = kArchitectureWords},
    {.name = "compute_capability",
     .type = integer,
     .required = true,
     .low = 80,
     .high = 999,
     .unit = "10 * major + minor"},
    {.name = "gpus", .type = texts, .required = true},
    {.name = "source", .type = text, .required = true},
    {.name = "limits", .type = map, .required = true},
    {.name = "build", .type = map, .required = true},
};
constexpr Field kLimits[] = {
    {.name = "registers_per_multiprocessor",
     .type = integer,
     .required = true,
     .low = 1024,
     .high = 1 << 24,
     .unit = "32-bit registers"},
    {.name = "registers_per_thread",
     .type = integer,
     .required = true,
     .low = 16,
     .high = 1024,
     .unit = "32-bit registers"},
    {.name = "threads_per_block", .type = integer, .required = true, .low = 32, .high = 65536, .unit = "threads"},
    {.name = "shared_memory_per_block",
     .type = integer,
     .required = true,
     .low = 16384,
     .high = 1 << 30,
     .unit = "bytes"},
};
constexpr Field kBuild[] = {
    {.name = "toolkit", .type = text, .required = true},
    {.name = "measured", .type = flag, .required = true},
    {.name = "kernels", .type = list_of_maps, .required = true},
};
/// So that sums of them stay in 64 bits.
constexpr std::int64_t kMostKernelBytes = std::int64_t{1} << 40;
constexpr Field kKernelCost[] = {
    {.name = "head_dim", .type = integer, .required = true, .values = kHeadDims, .unit = "elements"},
    {.name = "seconds", .type = number, .required = true, .unit = "seconds"},
    {.name = "bytes", .type = integer, .required = true, .low = 1, .high = kMostKernelBytes, .unit = "bytes"},
};
constexpr Field kTable[] = {
    {.name = "architecture", .type = word, .required = true, .words = kArchitectureWords},
    {.name = "rows", .type = list_of_maps, .required = true},
};
constexpr Field kRow[] = {
    {.name = "when", .type = map, .required = true},
    {.name = "use", .type = map, .required = true},
    {.name = "derived", .type = text},
    {.name = "measured", .type = map},
};
constexpr Field kWhen[] = {
    {.name = "head_dim", .type = integer, .required = true, .values = kHeadDims, .unit = "elements"},
    {.name = "data_type", .type = words, .words = kDataTypeWords},
    {.name = "bias", .type = words, .words = kBiasWords},
    {.name = "layout", .type = words, .words = kLayoutWords},
    {.name = "bias_copies", .type = flag},
    {.name = "softcap", .type = flag},
    {.name = "causal", .type = flag},
    {.name = "deterministic", .type = flag},
    {.name = "masked", .type = flag},
    {.name = "seqlen_q", .type = range, .unit = "elements"},
    {.name = "seqlen_k", .type = range, .unit = "elements"},
    {.name = "work_items_per_sm", .type = range, .unit = "items of 128 keys of one head"},
    {.name = "mask_density", .type = range, .low = 0, .high = 1000, .unit = "active pairs per 1000"},
};
constexpr Field kUse[] = {{.name = "family", .type = word, .words = kFamilyWords}};
constexpr Field kAmpereUse[] = {
    {.name = "family", .type = word, .words = words_of_one(KernelFamily::ampere)},
    {.name = "block_m", .type = integer, .required = true, .values = kBlockSizes, .unit = "queries"},
    {.name = "block_n", .type = integer, .required = true, .values = kBlockSizes, .unit = "keys"},
    {.name = "warps", .type = integer, .required = true, .values = kWarpCounts, .unit = "warps"},
    {.name = "score_warps_m", .type = integer, .required = true, .values = kWarpShares, .unit = "warps"},
    {.name = "dkv_warps_n", .type = integer, .required = true, .values = kWarpShares, .unit = "warps"},
    {.name = "dq_warps_m", .type = integer, .required = true, .values = kWarpShares, .unit = "warps"},
    {.name = "q_stages", .type = integer, .required = true, .values = kStageCounts, .unit = "buffers"},
    {.name = "do_stages", .type = integer, .required = true, .values = kStageCounts, .unit = "buffers"},
    {.name = "value_in_registers", .type = flag},
};
constexpr Field kHopperUse[] = {
    {.name = "family", .type = word, .required = true, .words = words_of_one(KernelFamily::hopper)},
    {.name = "block_m", .type = integer, .required = true, .values = kHopperBlockM, .unit = "queries"},
    {.name = "block_n", .type = integer, .required = true, .values = kHopperBlockN, .unit = "keys"},
    {.name = "consumer_warpgroups",
     .type = integer,
     .required = true,
     .values = kConsumerWarpgroups,
     .unit = "warpgroups"},
    {.name = "q_stages", .type = integer, .required = true, .values = kHopperStageCounts, .unit = "buffers"},
    {.name = "do_stages", .type = integer, .required = true, .values = kHopperDOutStageCounts, .unit = "buffers"},
    {.name = "ds_stages", .type = integer, .required = true, .values = kDsStageCounts, .unit = "buffers"},
    // What setmaxnreg takes.
    {.name = "producer_registers", .type = integer, .required = true, .low = 24, .high = 256, .unit = "registers"},
    {.name = "consumer_registers", .type = integer, .required = true, .low = 24, .high = 256, .unit = "registers"},
    {.name = "cta_pair", .type = flag},
    {.name = "several_items", .type = flag},
    {.name = "skip_empty_halves", .type = flag},
};

/// Whether `use` has a key for `family` and for each field of a tile, and no other.
constexpr bool has_fields_of(KernelFamily family, std::span<const Field> use) {
  for (const TileField& tile_field : tile_fields(family)) {
    bool found = false;
    for (const Field& field : use) found = found || field.name == tile_field.name;
    if (!found) return false;
  }
  return use.size() == tile_fields(family).size() + 1;
}
static_assert(has_fields_of(KernelFamily::ampere, kAmpereUse) && has_fields_of(KernelFamily::hopper, kHopperUse));

constexpr Field kMeasured[] = {
    {.name = "gpu", .type = text, .required = true},
    {.name = "sm_count", .type = integer, .required = true, .low = 1, .high = kMostSms, .unit = "multiprocessors"},
    {.name = "toolkit", .type = text, .required = true},
    {.name = "driver", .type = text, .required = true},
    {.name = "date", .type = date, .required = true},
    {.name = "commit", .type = text, .required = true},
    {.name = "source", .type = text},
    {.name = "problem", .type = text},
    {.name = "ms", .type = number, .required = true, .unit = "milliseconds"},
    {.name = "spread_ms", .type = number, .unit = "milliseconds"},
    {.name = "runner_up", .type = text, .required = true},
    {.name = "runner_up_ms", .type = number, .required = true, .unit = "milliseconds"},
    {.name = "problems", .type = integer, .low = 1, .unit = "measured problems"},
    {.name = "worst_regret_percent", .type = number, .unit = "percent"},
};
constexpr Field kProfile[] = {
    {.name = "profile", .type = text, .required = true},
    {.name = "description", .type = text, .required = true},
    {.name = "instantiate", .type = map, .required = true},
};
constexpr Field kInstantiate[] = {
    {.name = "head_dim", .type = integers, .required = true, .values = kHeadDims, .unit = "elements"},
    {.name = "data_type", .type = words, .required = true, .words = kDataTypeWords},
    {.name = "bias", .type = words, .required = true, .words = kBiasWords},
    {.name = "softcap", .type = flags, .required = true},
};

}  // namespace

const MapFields kArchitectureFields{"an architecture", "architecture", kArchitecture};
const MapFields kLimitsFields{"`limits`", "limits", kLimits};
const MapFields kBuildFields{"`build`", "build", kBuild};
const MapFields kKernelCostFields{"an entry of `kernels`", "kernel_cost", kKernelCost};
const MapFields kTableFields{"a table", "table", kTable};
const MapFields kRowFields{"a row", "row", kRow};
const MapFields kWhenFields{"`when`", "when", kWhen};
const MapFields kUseFields{"`use`", "use", kUse};
const MapFields kAmpereUseFields{"`use`", "ampere_use", kAmpereUse};
const MapFields kHopperUseFields{"`use` of the family hopper", "hopper_use", kHopperUse};
const MapFields kMeasuredFields{"`measured`", "measured", kMeasured};
const MapFields kProfileFields{"a profile", "profile", kProfile};
const MapFields kInstantiateFields{"`instantiate`", "instantiate", kInstantiate};

const MapFields& use_fields(KernelFamily family) {
  return family == KernelFamily::hopper ? kHopperUseFields : kAmpereUseFields;
}

std::span<const MapFields* const> all_map_fields() {
  static constexpr const MapFields* kAll[] = {
      &kArchitectureFields, &kLimitsFields,  &kBuildFields,      &kKernelCostFields, &kTableFields,
      &kRowFields,          &kWhenFields,    &kUseFields,        &kAmpereUseFields,  &kHopperUseFields,
      &kMeasuredFields,     &kProfileFields, &kInstantiateFields};
  return kAll;
}

}  // namespace flashdma_bwd::generator
