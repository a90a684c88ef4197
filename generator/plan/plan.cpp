// Rows to kernels to translation units.
#include "plan/plan.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>

#include "selection/configuration_name.hpp"
#include "selection/row_text.hpp"
#include "selection/vocabulary.hpp"
#include "validation/coverage.hpp"

namespace flashdma_bwd::generator {
namespace {

bool matches_pattern(std::string_view text, std::string_view pattern) {
  std::size_t t = 0, p = 0;
  std::size_t star = std::string_view::npos, resume = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++t;
      ++p;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

bool wants(const Profile& profile, const KernelConfig& config) {
  return std::find(profile.head_dims.begin(), profile.head_dims.end(), config.head_dim) != profile.head_dims.end() &&
         profile.data_types.contains(config.data_type) && profile.biases.contains(config.bias) &&
         profile.softcap.contains(config.softcap);
}

/// The canonical name up to the bias: what the kernels of a translation unit have in common.
std::string unit_name(const KernelConfig& config) {
  const std::string tile = tile_name(config.tile);
  const std::string name = configuration_name(config);
  return name.substr(0, name.find(tile) + tile.size());
}

bool same_place(const Row& a, const Row& b) {
  return a.file == b.file && a.line == b.line;
}

void add_row(std::vector<Row>& rows, const Row& row) {
  const auto same = [&](const Row& other) { return same_place(other, row); };
  if (std::none_of(rows.begin(), rows.end(), same)) rows.push_back(row);
}

}  // namespace

bool matches(std::string_view name, std::string_view filter) {
  if (filter.find_first_of("*?") == std::string_view::npos) return name.find(filter) != std::string_view::npos;
  return matches_pattern(name, filter);
}

Plan make_plan(const Configuration& configuration, const Profile& profile, std::string_view filter) {
  Plan plan;
  plan.profile = profile.name;
  plan.filter = filter;
  std::map<std::string, PlannedKernel> kernels;  // by canonical name
  for (const Table& table : configuration.tables) {
    const Coverage coverage = cover(table);
    for (std::size_t i = 0; i < table.rows.size(); ++i) {
      const Row row = as_row(table, table.rows[i]);
      plan.rows.push_back(row);
      for (const DataType data_type : kDataTypes)
        for (const BiasKind bias : kBiasKinds)
          for (const bool softcap : {false, true}) {
            const KernelConfig config{row.architecture, row.when.head_dim, data_type, bias, softcap, row.use};
            const auto decides = [&](const Region& region) { return admits(region, data_type, bias, softcap); };
            if (!wants(profile, config) ||
                std::none_of(coverage.decided[i].begin(), coverage.decided[i].end(), decides))
              continue;
            std::string name = configuration_name(config);
            if (!matches(name, filter)) continue;
            PlannedKernel& kernel = kernels[name];
            kernel.config = config;
            kernel.name = std::move(name);
            add_row(kernel.rows, row);
          }
    }
  }

  std::map<std::string, TranslationUnit> units;  // by path
  for (auto& [name, kernel] : kernels) {
    const std::string stem = unit_name(kernel.config);
    const std::string path = "kernels/" + std::string(word(kernel.config.architecture)) + '/' + stem + ".cu";
    TranslationUnit& unit = units[path];
    unit.architecture = kernel.config.architecture;
    unit.name = stem;
    unit.path = path;
    for (const Row& row : kernel.rows) add_row(unit.rows, row);
    unit.kernels.push_back(std::move(kernel));
  }
  for (auto& [path, unit] : units) {
    std::sort(unit.rows.begin(), unit.rows.end(), [](const Row& a, const Row& b) { return a.line < b.line; });
    plan.units.push_back(std::move(unit));
  }
  return plan;
}

std::size_t kernel_count(const Plan& plan) {
  std::size_t count = 0;
  for (const TranslationUnit& unit : plan.units) count += unit.kernels.size();
  return count;
}

std::string table_hash(const std::vector<Row>& rows) {
  std::uint64_t hash = 0xcbf29ce484222325u;
  for (const Row& row : rows)
    for (const char c : row_text(row) + '\n') {
      hash ^= static_cast<unsigned char>(c);
      hash *= 0x100000001b3u;
    }
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[hash >> shift & 15u];
  return digits;
}

}  // namespace flashdma_bwd::generator
