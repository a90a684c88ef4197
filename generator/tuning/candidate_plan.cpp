// Kernels to translation units, one each.
#include "tuning/candidate_plan.hpp"

#include <map>
#include <string>
#include <utility>

#include "selection/configuration_name.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {

Plan candidate_plan(const Configuration& configuration, std::span<const KernelConfig> kernels) {
  Plan plan;
  plan.profile = "candidates";
  for (const Table& table : configuration.tables)
    for (const TableRow& row : table.rows) plan.rows.push_back(as_row(table, row));
  std::map<std::string, TranslationUnit> units;  // by path, which sorts as the names do
  for (const KernelConfig& config : kernels) {
    TranslationUnit unit;
    unit.architecture = config.architecture;
    unit.name = configuration_name(config);
    unit.path = "kernels/" + std::string(word(config.architecture)) + '/' + unit.name + ".cu";
    unit.kernels.push_back({config, unit.name, {}});
    units.insert_or_assign(unit.path, std::move(unit));
  }
  for (auto& [path, unit] : units) plan.units.push_back(std::move(unit));
  return plan;
}

}  // namespace flashdma_bwd::generator
