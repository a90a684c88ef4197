// The product of the fields' values, filtered by the rules of a table.
#include "tuning/candidates.hpp"

#include <algorithm>
#include <flashdma_bwd/kernel_resources.hpp>
#include <string>
#include <utility>

#include "config/fields.hpp"
#include "selection/configuration_name.hpp"
#include "selection/kernel_family.hpp"
#include "validation/validate.hpp"

namespace flashdma_bwd::generator {
namespace {

/// What a loading thread has been found to need, see the rows of sm90.
constexpr std::int64_t kProducerRegisters[] = {24, 32, 40};

const Field& field_of(KernelFamily family, std::string_view name) {
  const std::span<const Field> fields = use_fields(family).fields;
  return *std::ranges::find_if(fields, [&](const Field& field) { return field.name == name; });
}

/// The most registers that setmaxnreg can give each consumer beside such a producer, in units of 8.
int consumer_registers_of(const ArchitectureSpec& spec, const TileConfig& tile) {
  const int threads = threads_per_block(tile), warpgroups = threads / kWarpgroupThreads;
  const int launched = spec.registers_per_multiprocessor / threads / 8 * 8 * warpgroups;
  return (launched - tile.producer_registers) / tile.consumer_warpgroups / 8 * 8;
}

std::vector<std::int64_t> values_of(KernelFamily family, const TileField& field) {
  if (field.flag != nullptr) return {0, 1};
  if (field.number == &TileConfig::producer_registers)
    return {std::begin(kProducerRegisters), std::end(kProducerRegisters)};
  if (field.number == &TileConfig::consumer_registers) return {0};  // follows from the others
  const std::span<const std::int64_t> values = field_of(family, field.name).values;
  return {values.begin(), values.end()};
}

std::vector<TileConfig> all_tiles(const ArchitectureSpec& spec, KernelFamily family) {
  std::vector<TileConfig> tiles{TileConfig{.family = family}};
  for (const TileField& field : tile_fields(family)) {
    std::vector<TileConfig> longer;
    for (const TileConfig& tile : tiles)
      for (const std::int64_t value : values_of(family, field)) {
        TileConfig& next = longer.emplace_back(tile);
        if (field.flag != nullptr)
          next.*field.flag = value != 0;
        else
          next.*field.number = static_cast<int>(value);
      }
    tiles = std::move(longer);
  }
  if (family == KernelFamily::hopper)
    for (TileConfig& tile : tiles) tile.consumer_registers = consumer_registers_of(spec, tile);
  return tiles;
}

bool passes(const ArchitectureSpec& spec, const When& when, const TileConfig& tile) {
  if (tile_shape_violation(tile, when.head_dim) != nullptr) return false;  // most fall here, cheaply
  Table table;
  table.architecture = spec.architecture;
  table.complete = true;
  TableRow& row = table.rows.emplace_back();
  row.when = when;
  row.use = tile;
  row.complete = true;
  Diagnostics diagnostics;
  validate_resources(table, spec, diagnostics);
  return diagnostics.empty();
}

/// More than one where the families differ.
int differing_fields(const TileConfig& a, const TileConfig& b) {
  if (a.family != b.family) return 2;
  int count = 0;
  for (const TileField& field : tile_fields(a.family)) {
    if (field.number == &TileConfig::consumer_registers) continue;  // follow from the producer's
    if (field.number != nullptr ? a.*field.number != b.*field.number : a.*field.flag != b.*field.flag) ++count;
  }
  return count;
}

}  // namespace

When kernel_condition(const Problem& problem) {
  When when;
  when.head_dim = head_dim_bucket(problem.head_dim);
  when.data_types.bits = std::uint32_t{1} << static_cast<unsigned>(problem.data_type);
  when.biases.bits = std::uint32_t{1} << static_cast<unsigned>(problem.bias);
  when.softcap = problem.softcap ? Choice::yes : Choice::no;
  if (problem.bias == BiasKind::tile) when.bias_copies = problem.bias_copies ? Choice::yes : Choice::no;
  return when;
}

std::vector<TileConfig> feasible_tiles(const ArchitectureSpec& spec, const Problem& problem) {
  const When when = kernel_condition(problem);
  std::vector<TileConfig> feasible;
  for (const KernelFamily family : {KernelFamily::ampere, KernelFamily::hopper}) {
    if (!runs_on(family, spec.architecture)) continue;
    for (const TileConfig& tile : all_tiles(spec, family))
      if (passes(spec, when, tile)) feasible.push_back(tile);
  }
  std::ranges::sort(feasible, {}, tile_name);
  return feasible;
}

std::vector<TileConfig> near_tiles(const std::vector<TileConfig>& tiles, const std::vector<TileConfig>& known) {
  std::vector<TileConfig> result;
  for (const TileConfig& tile : tiles)
    if (std::ranges::any_of(known, [&](const TileConfig& other) { return differing_fields(tile, other) <= 1; }))
      result.push_back(tile);
  return result;
}

KernelConfig kernel_of(Architecture architecture, const Problem& problem, const TileConfig& tile) {
  return {architecture, head_dim_bucket(problem.head_dim), problem.data_type, problem.bias, problem.softcap, tile};
}

}  // namespace flashdma_bwd::generator
