// Families, biases, divisibility, threads, shared memory and registers of tiles, by the closed formulas of
// kernel_resources.hpp.
#include <algorithm>
#include <cstddef>
#include <flashdma_bwd/kernel_resources.hpp>
#include <string>
#include <utility>
#include <vector>

#include "selection/kernel_family.hpp"
#include "selection/vocabulary.hpp"
#include "validation/coverage.hpp"
#include "validation/validate.hpp"

namespace flashdma_bwd::generator {
namespace {

std::string number(int value) {
  return std::to_string(value);
}

/// "a 1 + b 2 = 3", leaving out what is zero.
std::string sum(std::initializer_list<std::pair<const char*, int>> parts, int total) {
  std::string text;
  for (const auto& [name, value] : parts)
    if (value != 0) text += (text.empty() ? "" : " + ") + std::string(name) + ' ' + number(value);
  return text + " = " + number(total);
}

/// The place of the field that a rule's text begins with.
Location place_of(const TableRow& row, const std::string& rule) {
  const auto field = row.use_fields.find(rule.substr(0, rule.find(' ')));
  return field != row.use_fields.end() ? field->second : row.use_at;
}

bool check_family(const Table& table, const TableRow& row, Diagnostics& diagnostics) {
  if (runs_on(row.use.family, table.architecture)) return true;
  const std::string architecture(word(table.architecture));
  diagnostics.add(Rule::family_architecture, place_of(row, "family"),
                  "kernels of the family " + std::string(word(row.use.family)) + " do not run on " + architecture,
                  {"wgmma and TMA exist on compute capability 9.0 only",
                   "move the row to the table of sm90, or give it a tile of the family ampere"});
  return false;
}

/// "head_dim 96, block_m 64, ..."; of the flags those that are set.
std::string fields_of(const TableRow& row) {
  std::string text = "head_dim " + number(row.when.head_dim);
  for (const TileField& field : tile_fields(row.use.family)) {
    if (field.flag != nullptr && !(row.use.*field.flag)) continue;
    text += ", " + std::string(field.name) + ' ' + (field.flag != nullptr ? "true" : number(row.use.*field.number));
  }
  return text;
}

bool check_shape(const TableRow& row, Diagnostics& diagnostics) {
  const char* violation = tile_shape_violation(row.use, row.when.head_dim);
  if (violation == nullptr) return true;
  std::string rule = violation;
  // The field at fault may be head_dim, whose value is in `when`.
  const Location at = rule.starts_with("head_dim") ? row.when_at : place_of(row, rule);
  std::string note = fields_of(row);
  if (row.use.family == KernelFamily::ampere) note += "; a warp's share is a multiple of 16 in each direction";
  diagnostics.add(Rule::tile_shape, at, rule, {note});
  return false;
}

/// Whether a kernel of one of the problems in `decided` has the bias.
bool decides(const std::vector<Region>& decided, BiasKind bias) {
  for (const Region& region : decided)
    for (const DataType data_type : kDataTypes)
      for (const bool softcap : {false, true})
        if (admits(region, data_type, bias, softcap)) return true;
  return false;
}

void check_bias(const TableRow& row, const std::vector<Region>& decided, Diagnostics& diagnostics) {
  if (row.use.family == KernelFamily::hopper && reads(row.use, BiasKind::tile) &&
      std::ranges::any_of(decided, admits_uncopied_tile_bias))
    diagnostics.add(Rule::tile_bias, place_of(row, "family"),
                    "the row decides problems with a tile bias that kernels of the family hopper do not serve: they "
                    "move its tiles by tensor copies",
                    {"add `bias: [none, key_vector]` to its `when`, and for `bias: tile, bias_copies: true` a row of "
                     "its own; a row of the family ampere serves the rest"});
  if (reads(row.use, BiasKind::tile) || !decides(decided, BiasKind::tile)) return;
  const std::string field = row.use.several_items       ? "several_items"
                            : row.use.skip_empty_halves ? "skip_empty_halves"
                                                        : "block_n";
  const std::string kernels = field == "block_n" ? "block_n " + number(row.use.block_n) : field;
  diagnostics.add(Rule::tile_bias, place_of(row, field),
                  "the row decides problems with a tile bias, which kernels of " + kernels + " do not read",
                  {"put a row with another tile for `bias: tile` before it, or add `bias: [none, key_vector]` to its "
                   "`when`"});
}

void check_threads(const TableRow& row, const ArchitectureSpec& spec, Diagnostics& diagnostics) {
  const int threads = threads_per_block(row.use);
  if (threads <= spec.threads_per_block) return;
  const bool hopper = row.use.family == KernelFamily::hopper;
  diagnostics.add(Rule::threads, place_of(row, hopper ? "consumer_warpgroups" : "warps"),
                  (hopper ? "a producer and " + number(row.use.consumer_warpgroups) + " consumer warpgroups"
                          : number(row.use.warps) + " warps") +
                      " are " + number(threads) + " threads, more than the " + number(spec.threads_per_block) +
                      " that a block may have");
}

std::string shared_memory_sum(const KernelConfig& config) {
  if (config.tile.family == KernelFamily::hopper) {
    // Of a kernel's two layouts the larger one.
    HopperSharedMemory l = hopper_shared_memory(config);
    if (l.total() < shared_memory_bytes(config)) l = hopper_shared_memory(config, false);
    return sum({{"K", l.key},
                {"V", l.value},
                {"Q", l.query},
                {"dO", l.d_out},
                {"dS", l.d_score},
                {"dQ", l.d_query},
                {"tile bias", l.tile_bias},
                {"mask", l.mask},
                {"P", l.probability},
                {"LSE and D", l.statistics},
                {"bias", l.bias},
                {"state", l.state}},
               l.total());
  }
  const AmpereSharedMemory l = ampere_shared_memory(config);
  return sum({{"K", l.key},
              {"V", l.value},
              {"Q", l.query},
              {"dO", l.d_out},
              {"P", l.probability},
              {"dS", l.d_score},
              {"LSE and D", l.statistics},
              {"positions", l.positions},
              {"bias", l.bias},
              {"state", l.state}},
             l.total());
}

/// The kernel that needs most shared memory of those that the problems in `decided` run; the simplest where several do,
/// and where there are no problems.
KernelConfig largest_kernel(const KernelConfig& simplest, const std::vector<Region>& decided) {
  KernelConfig largest = simplest;
  bool found = false;
  for (const Region& region : decided)
    for (const DataType data_type : kDataTypes)
      for (const bool softcap : {false, true})
        for (const BiasKind bias : kBiasKinds) {
          if (!admits(region, data_type, bias, softcap)) continue;
          KernelConfig config = simplest;
          config.bias = bias;
          config.softcap = softcap;
          if (!found || shared_memory_bytes(config) > shared_memory_bytes(largest)) largest = config;
          found = true;
        }
  return largest;
}

/// What would need less. `fits_others`: the tile fits without the bias and the softcap.
std::vector<std::string> what_needs_less(const TileConfig& tile, bool fits_others) {
  std::vector<std::string> notes;
  if (tile.family == KernelFamily::ampere)
    notes.emplace_back("fewer stages, a smaller block_m or block_n, or value_in_registers need less");
  else if (tile.block_m > 64)
    notes.emplace_back("fewer stages or a smaller block_m need less");
  else if (tile.q_stages + tile.do_stages > (tile.cta_pair ? 3 : 4))
    notes.emplace_back("fewer stages need less");
  if (fits_others) notes.emplace_back("the tile fits other problems: give these a row with another tile");
  return notes;
}

/// `config`: the largest kernel of the row.
void check_shared_memory(const TableRow& row, const KernelConfig& config, int limit, Diagnostics& diagnostics) {
  const int needed = shared_memory_bytes(config);
  if (needed <= limit) return;
  KernelConfig simplest = config;
  simplest.bias = BiasKind::none;
  simplest.softcap = false;
  const int needed_by_simplest = shared_memory_bytes(simplest);
  std::string problems;
  if (needed_by_simplest != needed)
    problems = " with bias " + std::string(word(config.bias)) + (config.softcap ? " and softcap" : "");
  std::vector<std::string> notes = what_needs_less(row.use, needed_by_simplest <= limit);
  notes.insert(notes.begin(), shared_memory_sum(config));
  diagnostics.add(Rule::shared_memory, row.use_at,
                  "the tile needs " + number(needed) + " bytes of shared memory" + problems + ", " +
                      number(needed - limit) + " more than the " + number(limit) + " that a block may have",
                  std::move(notes));
}

/// What setmaxnreg hands out must be there: a block gets its registers at launch, the same number for each thread, and
/// a consumer waits forever for what its producer cannot give up.
bool check_register_budget(const TableRow& row, const ArchitectureSpec& spec, Diagnostics& diagnostics) {
  if (row.use.family != KernelFamily::hopper) return true;
  const TileConfig& tile = row.use;
  const int threads = threads_per_block(tile), warpgroups = threads / kWarpgroupThreads;
  const int share = spec.registers_per_multiprocessor / threads / 8 * 8;
  const int wanted = tile.producer_registers + tile.consumer_warpgroups * tile.consumer_registers;
  if (wanted <= warpgroups * share) return true;
  diagnostics.add(Rule::registers, place_of(row, "consumer_registers"),
                  "the warpgroups want " + number(wanted) + " registers for a thread of each, " +
                      number(wanted - warpgroups * share) + " more than the " + number(warpgroups * share) +
                      " that they are launched with",
                  {"producer_registers " + number(tile.producer_registers) + " + " + number(tile.consumer_warpgroups) +
                       " * consumer_registers " + number(tile.consumer_registers) + " = " + number(wanted),
                   "a launch gives each thread " + number(spec.registers_per_multiprocessor) + " / " + number(threads) +
                       " threads = " + number(share) + " registers, in units of 8: " + number(warpgroups) + " * " +
                       number(share) + " = " + number(warpgroups * share)});
  return false;
}

void check_registers(const TableRow& row, const KernelConfig& config, const ArchitectureSpec& spec,
                     Diagnostics& diagnostics) {
  const int threads = threads_per_block(config.tile);
  // The hardware hands registers out in units of 8 a thread.
  const int share = spec.registers_per_multiprocessor / threads / 8 * 8;
  const bool hopper = config.tile.family == KernelFamily::hopper;
  const int limit = std::min(hopper ? config.tile.consumer_registers : share, spec.registers_per_thread);
  const int needed = estimated_registers(config);
  if (needed <= limit) return;
  diagnostics.add(Rule::registers, row.use_at,
                  "the tile needs about " + number(needed) + " registers a " + (hopper ? "consumer " : "") +
                      "thread, " + number(needed - limit) + " more than the " + number(limit) + " that there are",
                  {sum({{"dK and dV", resident_accumulator_registers(config)},
                        {"V", resident_value_registers(config)},
                        {"S and dP, or dQ", step_accumulator_registers(config)},
                        {"operands and addresses", working_registers(config.tile)}},
                       needed),
                   "the limit is the smaller of " + number(spec.registers_per_thread) + " and " +
                       (hopper ? "consumer_registers = " + number(config.tile.consumer_registers)
                               : number(spec.registers_per_multiprocessor) + " / " + number(threads) +
                                     " threads = " + number(share))});
}

}  // namespace

void validate_resources(const Table& table, const ArchitectureSpec& spec, Diagnostics& diagnostics) {
  // What a row decides depends on those before it: where some could not be read, nobody knows.
  Coverage coverage;
  if (table.complete) coverage = cover(table);
  coverage.decided.resize(table.rows.size());
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    const TableRow& row = table.rows[i];
    if (!row.complete || !check_family(table, row, diagnostics) || !check_register_budget(row, spec, diagnostics) ||
        !check_shape(row, diagnostics))
      continue;
    // Data types differ in nothing, bias and softcap in nothing but the shared memory.
    const KernelConfig config{table.architecture, row.when.head_dim, DataType::bf16, BiasKind::none, false, row.use};
    check_bias(row, coverage.decided[i], diagnostics);
    check_threads(row, spec, diagnostics);
    check_shared_memory(row, largest_kernel(config, coverage.decided[i]), spec.shared_memory_per_block, diagnostics);
    check_registers(row, config, spec, diagnostics);
  }
}

}  // namespace flashdma_bwd::generator
