// Divisibility, threads, shared memory and registers of tiles, by the closed formulas of kernel_resources.hpp.
#include <algorithm>
#include <flashdma_bwd/kernel_resources.hpp>
#include <string>
#include <utility>

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

bool check_shape(const TableRow& row, Diagnostics& diagnostics) {
  const char* violation = tile_shape_violation(row.use, row.when.head_dim);
  if (violation == nullptr) return true;
  std::string rule = violation;
  // The field at fault may be head_dim, whose value is in `when`.
  const Location at = rule.starts_with("head_dim") ? row.when_at : place_of(row, rule);
  const TileConfig& t = row.use;
  diagnostics.add(Rule::tile_shape, at, rule,
                  {"head_dim " + number(row.when.head_dim) + ", block_m " + number(t.block_m) + ", block_n " +
                   number(t.block_n) + ", warps " + number(t.warps) + ", score_warps_m " + number(t.score_warps_m) +
                   ", dkv_warps_n " + number(t.dkv_warps_n) + ", dq_warps_m " + number(t.dq_warps_m) +
                   "; a warp's share is a multiple of 16 in each direction"});
  return false;
}

void check_shared_memory(const TableRow& row, const KernelConfig& config, int limit, Diagnostics& diagnostics) {
  const AmpereSharedMemory l = ampere_shared_memory(config);
  if (l.total() <= limit) return;
  diagnostics.add(Rule::shared_memory, row.use_at,
                  "the tile needs " + number(l.total()) + " bytes of shared memory, " + number(l.total() - limit) +
                      " more than the " + number(limit) + " that a block may have",
                  {sum({{"K", l.key},
                        {"V", l.value},
                        {"Q", l.query},
                        {"dO", l.d_out},
                        {"P", l.probability},
                        {"dS", l.d_score},
                        {"LSE and D", l.statistics},
                        {"positions", l.positions},
                        {"bias", l.bias},
                        {"state", l.state}},
                       l.total()),
                   "fewer stages, a smaller block_m or block_n, or value_in_registers need less"});
}

void check_registers(const TableRow& row, const KernelConfig& config, const ArchitectureSpec& spec,
                     Diagnostics& diagnostics) {
  const int threads = threads_per_block(config.tile);
  // The hardware hands registers out in units of 8 a thread.
  const int share = spec.registers_per_multiprocessor / threads / 8 * 8;
  const int limit = std::min(share, spec.registers_per_thread);
  const int needed = estimated_registers(config);
  if (needed <= limit) return;
  diagnostics.add(
      Rule::registers, row.use_at,
      "the tile needs about " + number(needed) + " registers a thread, " + number(needed - limit) + " more than the " +
          number(limit) + " that there are",
      {sum({{"dK and dV", resident_accumulator_registers(config)},
            {"V", resident_value_registers(config)},
            {"S and dP, or dQ", step_accumulator_registers(config)},
            {"operands and addresses", kWorkingRegisters}},
           needed),
       "the limit is the smaller of " + number(spec.registers_per_thread) + " and " +
           number(spec.registers_per_multiprocessor) + " / " + number(threads) + " threads = " + number(share)});
}

}  // namespace

void validate_resources(const Table& table, const ArchitectureSpec& spec, Diagnostics& diagnostics) {
  for (const TableRow& row : table.rows) {
    if (!row.complete || !check_shape(row, diagnostics)) continue;
    // Data type, bias and softcap do not change what a tile needs.
    const KernelConfig config{table.architecture, row.when.head_dim, DataType::bf16, BiasKind::none, false, row.use};
    if (const int threads = threads_per_block(row.use); threads > spec.threads_per_block)
      diagnostics.add(Rule::threads, place_of(row, "warps"),
                      number(row.use.warps) + " warps are " + number(threads) + " threads, more than the " +
                          number(spec.threads_per_block) + " that a block may have");
    check_shared_memory(row, config, spec.shared_memory_per_block, diagnostics);
    check_registers(row, config, spec, diagnostics);
  }
}

}  // namespace flashdma_bwd::generator
