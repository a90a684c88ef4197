// Rules over the configuration as a whole.
#include "validation/validate.hpp"

#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {
namespace {

const Table* find_table(const Configuration& configuration, Architecture architecture) {
  for (const Table& table : configuration.tables)
    if (table.architecture == architecture) return &table;
  return nullptr;
}

void validate_pairs(const Configuration& configuration, Diagnostics& diagnostics) {
  for (const ArchitectureSpec& spec : configuration.architectures)
    if (find_table(configuration, spec.architecture) == nullptr)
      diagnostics.add(Rule::file_missing, spec.at, "the architecture has no table",
                      {"add tables/" + std::string(word(spec.architecture)) + ".yaml"});
  for (const Table& table : configuration.tables)
    if (find_architecture(configuration, table.architecture) == nullptr)
      diagnostics.add(Rule::file_missing, table.at, "the table's architecture has no limits",
                      {"add architectures/" + std::string(word(table.architecture)) + ".yaml"});
}

}  // namespace

void validate(const Configuration& configuration, Diagnostics& diagnostics) {
  // A file with findings is missing from the model; it is not missing from the disk.
  if (diagnostics.empty()) validate_pairs(configuration, diagnostics);
  for (const Table& table : configuration.tables) {
    if (const ArchitectureSpec* spec = find_architecture(configuration, table.architecture))
      validate_resources(table, *spec, diagnostics);
    if (table.complete) validate_coverage(table, diagnostics);
  }
}

}  // namespace flashdma_bwd::generator
