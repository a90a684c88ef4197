// A mask's (batch, head) slices differ by their random numbers only. A mask with one row is the last query's, one with
// one column the first key's.
#include "support/mask_structures.hpp"

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "support/random.hpp"

namespace flashdma_bwd::testing {
namespace {

using Keep = std::function<void(std::int64_t row, std::int64_t column)>;

struct Slice {
  const MaskSpec& spec;
  const MaskDimensions& dimensions;
  std::uint64_t seed;

  std::int64_t query(std::int64_t row) const { return dimensions.rows == 1 ? dimensions.seqlen_q - 1 : row; }
  /// The last key that causality, aligned bottom-right, leaves to a query.
  std::int64_t last_key(std::int64_t query) const {
    return std::min(dimensions.seqlen_k - 1, query + dimensions.seqlen_k - dimensions.seqlen_q);
  }
  /// A number in [0, 1) that only (seed, a, b) determine.
  double chance(std::int64_t a, std::int64_t b) const {
    const std::uint64_t index = static_cast<std::uint64_t>(a) << 32 ^ static_cast<std::uint64_t>(b);
    return static_cast<double>(mix(seed ^ mix(index)) >> 11) * 0x1p-53;
  }
};

void top_w(const Slice& slice, const Keep& keep) {
  using Scored = std::pair<double, std::int64_t>;
  std::set<Scored> best;
  std::int64_t next_key = 0;
  const std::int64_t width = std::max<std::int64_t>(slice.spec.width, 1);
  for (std::int64_t row = 0; row < slice.dimensions.rows; ++row) {
    for (; next_key <= slice.last_key(slice.query(row)); ++next_key) {
      best.emplace(slice.chance(next_key, 0), next_key);
      if (static_cast<std::int64_t>(best.size()) > width) best.erase(best.begin());
    }
    for (const Scored& scored : best)
      if (scored.second < slice.dimensions.columns) keep(row, scored.second);
  }
}

std::vector<std::int64_t> document_of_key(const Slice& slice) {
  std::vector<std::int64_t> documents(static_cast<std::size_t>(slice.dimensions.seqlen_k));
  std::int64_t document = 0;
  for (std::size_t key = 0; key < documents.size(); ++key) {
    if (slice.chance(static_cast<std::int64_t>(key), 1) * static_cast<double>(slice.spec.width) < 1) ++document;
    documents[key] = document;
  }
  return documents;
}

/// Whether a structure keeps a pair, for those in which pairs are independent of each other.
bool keeps(const Slice& slice, const std::vector<std::int64_t>& documents, std::int64_t query, std::int64_t key) {
  const std::int64_t width = std::max<std::int64_t>(slice.spec.width, 1);
  const double probability = slice.spec.probability;
  const MaskDimensions& dimensions = slice.dimensions;
  switch (slice.spec.structure) {
    case MaskStructure::keep_all:
      return true;
    case MaskStructure::single_pair:
      return query == static_cast<std::int64_t>(slice.seed % static_cast<std::uint64_t>(dimensions.rows)) +
                          (dimensions.rows == 1 ? dimensions.seqlen_q - 1 : 0) &&
             key == static_cast<std::int64_t>(mix(slice.seed) % static_cast<std::uint64_t>(dimensions.columns));
    case MaskStructure::alternating_tiles:
      return (query / width + key / width + static_cast<std::int64_t>(slice.seed % 2)) % 2 == 0;
    case MaskStructure::empty_rows:
      return slice.chance(query, -1) >= 1.0 / 3 && query / 64 != 1 && slice.chance(query, key) < probability;
    case MaskStructure::empty_columns:
      return slice.chance(-1, key) >= 1.0 / 3 && key / 64 != 1 && slice.chance(query, key) < probability;
    case MaskStructure::one_key_per_row:
      return key == static_cast<std::int64_t>(slice.chance(query, 2) * static_cast<double>(dimensions.columns));
    case MaskStructure::one_tile: {
      const std::int64_t tiles = (dimensions.columns + 63) / 64;
      return key / 64 == static_cast<std::int64_t>(slice.chance(3, 3) * static_cast<double>(tiles)) &&
             slice.chance(query, key) < probability;
    }
    case MaskStructure::bernoulli:
      return slice.chance(query, key) < probability;
    case MaskStructure::window_with_sinks: {
      const std::int64_t last = query + dimensions.seqlen_k - dimensions.seqlen_q;
      return key <= last && (key > last - width || key < 4);
    }
    case MaskStructure::documents:
      // A row for all queries may be there where there are none.
      return dimensions.seqlen_q > 0 &&
             documents[static_cast<std::size_t>(query * dimensions.seqlen_k / dimensions.seqlen_q)] ==
                 documents[static_cast<std::size_t>(key)];
    case MaskStructure::block_sparse:
      return slice.chance(query / width, key / width) < probability;
    case MaskStructure::none:
    case MaskStructure::keep_nothing:
    case MaskStructure::causal_top_w:
      break;
  }
  return false;
}

void fill_slice(const Slice& slice, const Keep& keep) {
  if (slice.spec.structure == MaskStructure::causal_top_w) return top_w(slice, keep);
  std::vector<std::int64_t> documents;
  if (slice.spec.structure == MaskStructure::documents) documents = document_of_key(slice);
  for (std::int64_t row = 0; row < slice.dimensions.rows; ++row)
    for (std::int64_t column = 0; column < slice.dimensions.columns; ++column)
      if (keeps(slice, documents, slice.query(row), column)) keep(row, column);
}

}  // namespace

void for_each_kept_pair(const MaskSpec& spec, const MaskDimensions& dimensions, std::uint64_t seed,
                        const std::function<void(std::int64_t, std::int64_t, std::int64_t, std::int64_t)>& keep) {
  for (std::int64_t batch = 0; batch < dimensions.batch; ++batch) {
    for (std::int64_t head = 0; head < dimensions.heads; ++head) {
      const std::uint64_t slice_seed = mix(seed ^ mix(static_cast<std::uint64_t>(batch * dimensions.heads + head)));
      fill_slice({spec, dimensions, slice_seed},
                 [&](std::int64_t row, std::int64_t column) { keep(batch, head, row, column); });
    }
  }
}

}  // namespace flashdma_bwd::testing
