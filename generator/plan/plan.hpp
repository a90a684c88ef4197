// What is instantiated: from tables and a profile to sorted, unique kernels, grouped into translation units. Pure.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "config/model.hpp"

namespace flashdma_bwd::generator {

struct PlannedKernel {
  KernelConfig config;
  std::string name;       ///< canonical
  std::vector<Row> rows;  ///< that choose it, in file order; their texts belong to the configuration
};

/// Kernels of one architecture, head dim, data type and tile: they share a file.
struct TranslationUnit {
  Architecture architecture = Architecture::sm80;
  std::string name;                    ///< the kernels' names up to the bias
  std::string path;                    ///< relative to generated/
  std::vector<PlannedKernel> kernels;  ///< by name
  std::vector<Row> rows;               ///< that choose any of them, in file order
};

struct Plan {
  std::string profile;
  std::string filter;                  ///< empty: none
  std::vector<Row> rows;               ///< of all tables: architectures in order, rows in file order
  std::vector<TranslationUnit> units;  ///< by path
};

/// `filter` keeps the kernels whose name matches it: a pattern of `*` and `?` for the whole name, or, without any of
/// them, a part of it. `configuration` must be valid and outlive the plan.
Plan make_plan(const Configuration& configuration, const Profile& profile, std::string_view filter = {});

bool matches(std::string_view name, std::string_view filter);

std::size_t kernel_count(const Plan& plan);

/// 64-bit FNV-1a of the canonical text of all rows, as 16 hexadecimal digits.
std::string table_hash(const std::vector<Row>& rows);

}  // namespace flashdma_bwd::generator
