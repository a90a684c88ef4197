// What the YAML files say, typed, and where each of them says it.
#pragma once

#include <array>
#include <cstdint>
#include <flashdma_bwd/kernel_table.hpp>
#include <functional>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "diagnostics/diagnostic.hpp"
#include "diagnostics/source_file.hpp"

namespace flashdma_bwd::generator {

/// nvcc's time on one core and the bytes in the library of one kernel.
struct KernelCost {
  double seconds = 0;
  std::int64_t bytes = 0;
};

struct ArchitectureSpec {
  Architecture architecture = Architecture::sm80;
  Location at;
  int compute_capability = 0;
  std::vector<std::string> gpus;
  int registers_per_multiprocessor = 0;
  int registers_per_thread = 0;
  int threads_per_block = 0;
  int shared_memory_per_block = 0;
  std::string build_toolkit;
  bool build_measured = false;
  std::array<KernelCost, std::size(kHeadDimBuckets)> costs;  ///< by bucket
};

struct TableRow {
  When when;
  TileConfig use;
  ProvenanceKind provenance = ProvenanceKind::derived;
  std::string provenance_text;
  std::string derived;  ///< what people say that the choice comes from; empty where the tuner made the row
  Location at;
  Location when_at;
  Location use_at;
  std::map<std::string, Location, std::less<>> use_fields;  ///< of the values of `use`
  bool complete = false;                                    ///< `when` and `use` were read without a finding
};

struct Table {
  Architecture architecture = Architecture::sm80;
  Location at;
  Location rows_at;
  std::string name;  ///< of its file, relative to the repository's root
  std::vector<TableRow> rows;
  bool complete = false;  ///< the file was read without a finding
};

struct Profile {
  std::string name;
  std::string description;
  Location at;
  std::vector<int> head_dims;
  EnumSet<DataType> data_types;
  EnumSet<BiasKind> biases;
  EnumSet<bool> softcap;
};

/// All of configs/.
struct Configuration {
  std::vector<SourceFile> sources;
  std::vector<ArchitectureSpec> architectures;  ///< in the enumeration's order
  std::vector<Table> tables;                    ///< in the enumeration's order
  std::vector<Profile> profiles;                ///< by name
};

/// A row as selection and the dispatch table know it. Its texts are `table`'s and `row`'s.
inline Row as_row(const Table& table, const TableRow& row) {
  return {table.architecture, row.when, row.use, row.provenance, row.provenance_text, table.name, row.at.line};
}

/// The same of all rows of a table, but for those that the tuner made.
inline std::vector<Row> chosen_by_people(const Table& table) {
  std::vector<Row> rows;
  for (const TableRow& row : table.rows)
    if (row.provenance == ProvenanceKind::derived || !row.derived.empty()) rows.push_back(as_row(table, row));
  return rows;
}

inline const ArchitectureSpec* find_architecture(const Configuration& configuration, Architecture architecture) {
  for (const ArchitectureSpec& spec : configuration.architectures)
    if (spec.architecture == architecture) return &spec;
  return nullptr;
}

inline const Profile* find_profile(const Configuration& configuration, std::string_view name) {
  for (const Profile& profile : configuration.profiles)
    if (profile.name == name) return &profile;
  return nullptr;
}

}  // namespace flashdma_bwd::generator
