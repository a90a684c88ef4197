// Sets of problems of one architecture and head dim: boxes of sets of enumerators and ranges of integers.
//
// The condition of a row is a box. What a row really decides is its box less those of the rows before it, and what no
// row decides is the domain less all of them: exact set arithmetic, with nothing sampled.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <flashdma_bwd/kernel_table.hpp>
#include <optional>
#include <string>
#include <vector>

namespace flashdma_bwd::generator {

inline constexpr std::size_t kSetAxes =
    8;  ///< data type, bias, layout, softcap, causal, deterministic, masked, bias copies
inline constexpr std::size_t kRangeAxes = 4;  ///< seqlen_q, seqlen_k, work items per SM, mask density

struct Region {
  std::array<std::uint32_t, kSetAxes> sets{};
  std::array<Range, kRangeAxes> ranges{};
  friend bool operator==(const Region&, const Region&) = default;
};

/// Every problem.
Region whole_domain();
Region region_of(const When& when);

std::optional<Region> intersect(const Region& a, const Region& b);
/// Disjoint boxes that together are `region` without `cut`.
std::vector<Region> subtract(const Region& region, const Region& cut);
std::vector<Region> subtract(const std::vector<Region>& regions, const Region& cut);
std::vector<Region> intersect(const std::vector<Region>& regions, const Region& with);
/// Without the problems that cannot be: those without a mask have natural keys and a density of 1000, no mask has the
/// density 0, only a tile bias whose keys stand in their own order can be copied, and sequences have a longest.
std::vector<Region> possible(std::vector<Region> regions);
/// Fewer boxes for the same set, where neighbours can be joined.
std::vector<Region> simplify(std::vector<Region> regions);

bool admits(const Region& region, DataType data_type, BiasKind bias, bool softcap);
/// Whether a problem with a tile bias may have a softcap or a bias that tensor copies cannot move.
bool admits_uncopied_tile_bias(const Region& region);

/// "bias key_vector, deterministic, seqlen_k 4097..": what narrows the region, empty for the whole domain.
std::string describe(const Region& region);

/// "(128, 192]": the head dims that a bucket serves.
std::string describe_head_dims(int bucket);

}  // namespace flashdma_bwd::generator
