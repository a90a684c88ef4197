// The generated tables, and a build that has every kernel that they can choose, without any code in it.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <span>
#include <string>
#include <vector>

#include "dispatch_table.hpp"

namespace flashdma_bwd::testing {

/// The rows of generated/dispatch_table.inc.
std::span<const Row> generated_rows();

/// A table whose kernels have names and configurations but no functions: those of `architectures`, or, with `only`,
/// those whose name contains it.
class PretendedBuild {
 public:
  explicit PretendedBuild(ArchitectureSet architectures = {}, const std::string& only = "");
  const DispatchTable& table() const { return table_; }

 private:
  std::vector<std::string> names_;
  std::vector<KernelEntry> kernels_;
  DispatchTable table_;
};

/// GPUs that exist.
inline constexpr DeviceTraits kA100{80, 108, 166912};
inline constexpr DeviceTraits kRtx3090{86, 82, 101376};
inline constexpr DeviceTraits kOrin{87, 16, 166912};
inline constexpr DeviceTraits kRtx4090{89, 128, 101376};
inline constexpr DeviceTraits kH100{90, 132, 232448};
inline constexpr DeviceTraits kB200{100, 148, 232448};
inline constexpr DeviceTraits kT4{75, 40, 65536};

inline constexpr ArchitectureSet set_of(std::initializer_list<Architecture> architectures) {
  ArchitectureSet set{0};
  for (const Architecture architecture : architectures) set.bits |= 1u << static_cast<unsigned>(architecture);
  return set;
}

/// A tile of the Hopper family that suits head dims up to 128.
TileConfig hopper_tile();
/// The same for larger ones: two CTAs share an item.
TileConfig hopper_pair_tile();

/// A problem in the middle of the domain.
Problem ordinary_problem();

/// A problem drawn from the whole domain; the same for the same state of the generator everywhere.
class ProblemSource {
 public:
  explicit ProblemSource(std::uint64_t seed) : state_(seed) {}
  Problem next();
  std::int64_t below(std::int64_t limit);

 private:
  std::uint64_t state_;
};

}  // namespace flashdma_bwd::testing
