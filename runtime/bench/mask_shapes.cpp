// Masks on the host. See mask_shapes.hpp.
#include "mask_shapes.hpp"

#include <algorithm>
#include <cmath>
#include <queue>
#include <random>
#include <utility>

#include "active_pairs.hpp"

namespace flashdma_bwd::bench {
namespace {

// Keys that query `row` may see: the first ones, causality aligned bottom-right.
std::int64_t visible_keys(const Problem& problem, std::int64_t row) {
  if (!problem.causal) return problem.seqlen_k;
  return std::clamp<std::int64_t>(row + 1 + problem.seqlen_k - problem.seqlen_q, 0, problem.seqlen_k);
}

// The best w of a growing set of keys, kept as a row of bytes.
class BestKeys {
 public:
  BestKeys(const float* scores, std::int64_t seqlen_k, std::int64_t w)
      : scores_(scores), w_(static_cast<std::size_t>(w)), row_(static_cast<std::size_t>(seqlen_k), std::uint8_t{0}) {}
  void admit(std::int64_t key) {
    best_.emplace(scores_[key], key);
    row_[static_cast<std::size_t>(key)] = 1;
    if (best_.size() <= w_) return;
    row_[static_cast<std::size_t>(best_.top().second)] = 0;
    best_.pop();
  }
  const std::vector<std::uint8_t>& row() const { return row_; }

 private:
  using Entry = std::pair<float, std::int64_t>;
  const float* scores_;
  std::size_t w_;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> best_;
  std::vector<std::uint8_t> row_;
};

void fill_top_w(const Problem& problem, const float* scores, std::uint8_t* keep) {
  BestKeys best(scores, problem.seqlen_k, problem.top_w);
  std::int64_t admitted = 0;
  for (std::int64_t row = 0; row < problem.seqlen_q; ++row) {
    while (admitted < visible_keys(problem, row)) best.admit(admitted++);
    std::copy(best.row().begin(), best.row().end(), keep + row * problem.seqlen_k);
  }
}

// Bytes that are 1 with a probability, 8 random bytes at a time: resolution 1/256 is too coarse for sparse masks, so 16
// bits each.
void fill_random(double probability, std::uint64_t seed, std::vector<std::uint8_t>& keep) {
  std::mt19937_64 random(seed);
  const auto threshold = static_cast<std::uint32_t>(probability * 65536.0);
  std::uint64_t bits = 0;
  for (std::size_t i = 0; i < keep.size(); ++i) {
    bits = i % 4 == 0 ? random() : bits >> 16;
    keep[i] = static_cast<std::uint32_t>(bits & 0xffff) < threshold;
  }
}

// Of each row of bytes as many are 1 as make the share, to the nearest one.
void fill_keys(const Problem& problem, std::uint64_t seed, std::vector<std::uint8_t>& keep) {
  std::mt19937_64 random(seed);
  const auto kept =
      static_cast<std::ptrdiff_t>(std::llround(problem.keep_probability * static_cast<double>(problem.seqlen_k)));
  for (auto row = keep.begin(); row != keep.end(); row += problem.seqlen_k) {
    std::fill_n(row, kept, std::uint8_t{1});
    std::shuffle(row, row + problem.seqlen_k, random);
  }
}

// The keys [first, end) of a row of zeros, as far as there are such keys.
void keep_keys(const Problem& problem, std::uint8_t* row, std::int64_t first, std::int64_t end) {
  first = std::clamp<std::int64_t>(first, 0, problem.seqlen_k);
  end = std::clamp<std::int64_t>(end, first, problem.seqlen_k);
  std::fill(row + first, row + end, std::uint8_t{1});
}

// Rows that are the same for all batches and KV heads.
void fill_window(const Problem& problem, std::uint8_t* row, std::int64_t position) {
  keep_keys(problem, row, position - problem.width + 1, position + 1);
  keep_keys(problem, row, 0, std::min<std::int64_t>(kWindowSinks, position + 1));
}
void fill_document(const Problem& problem, std::uint8_t* row, std::int64_t position) {
  const std::int64_t document = std::max<std::int64_t>(position, 0) / problem.width;
  keep_keys(problem, row, document * problem.width, (document + 1) * problem.width);
}

// A row of bytes by fill(problem, row, the last key that causality lets it see), once for all batches and KV heads.
template <class Fill>
void fill_alike(const Problem& problem, std::vector<std::uint8_t>& keep, const Fill& fill) {
  const std::int64_t groups = problem.batch * problem.heads_kv;
  const std::int64_t delta = problem.seqlen_k - problem.seqlen_q;
  const std::int64_t pairs = problem.seqlen_q * problem.seqlen_k;
  for (std::int64_t row = 0; row < problem.seqlen_q; ++row)
    fill(problem, keep.data() + row * problem.seqlen_k, row + delta);
  for (std::int64_t group = 1; group < groups; ++group) std::copy_n(keep.data(), pairs, keep.data() + group * pairs);
}

void fill_blocks(const Problem& problem, std::uint64_t seed, std::vector<std::uint8_t>& keep) {
  const std::int64_t rows = (problem.seqlen_q + kMaskBlock - 1) / kMaskBlock;
  const std::int64_t columns = (problem.seqlen_k + kMaskBlock - 1) / kMaskBlock;
  std::vector<std::uint8_t> kept(static_cast<std::size_t>(problem.batch * problem.heads_kv * rows * columns));
  fill_random(problem.keep_probability, seed, kept);
  const std::uint8_t* block = kept.data();
  std::uint8_t* bytes = keep.data();
  for (std::int64_t group = 0; group < problem.batch * problem.heads_kv; ++group)
    for (std::int64_t row = 0; row < problem.seqlen_q; ++row, bytes += problem.seqlen_k) {
      if (row % kMaskBlock != 0) {
        std::copy_n(bytes - problem.seqlen_k, problem.seqlen_k, bytes);
        continue;
      }
      for (std::int64_t column = 0; column < columns; ++column)
        if (*block++ != 0) keep_keys(problem, bytes, column * kMaskBlock, (column + 1) * kMaskBlock);
    }
}

double active_fraction(const Problem& problem, const HostMask& mask) {
  if (mask.keep.empty())
    return visible_pairs(problem) / (static_cast<double>(problem.seqlen_q) * static_cast<double>(problem.seqlen_k));
  const std::int64_t groups = problem.batch * problem.heads_kv;
  double active = 0;
  for (std::int64_t group = 0; group < groups; ++group)
    for (std::int64_t row = 0; row < problem.seqlen_q; ++row) {
      const std::int64_t visible = visible_keys(problem, row);
      const std::uint8_t* keep = mask.keep.data() + (group * mask.rows + (mask.rows > 1 ? row : 0)) * problem.seqlen_k;
      active += static_cast<double>(visible - std::count(keep, keep + visible, std::uint8_t{0}));
    }
  return active / (static_cast<double>(groups * problem.seqlen_q) * static_cast<double>(problem.seqlen_k));
}

}  // namespace

std::vector<float> random_scores(const Problem& problem, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> scores(static_cast<std::size_t>(problem.batch * problem.heads_kv * problem.seqlen_k));
  for (float& score : scores) score = normal(random);
  return scores;
}

HostMask make_mask(const Problem& problem, const std::vector<float>& scores, std::uint64_t seed) {
  HostMask mask;
  if (problem.mask != MaskShape::none) {
    mask.rows = problem.mask == MaskShape::keys ? 1 : problem.seqlen_q;
    mask.keep.resize(static_cast<std::size_t>(problem.batch * problem.heads_kv * mask.rows * problem.seqlen_k));
    if (problem.mask == MaskShape::top_w) {
      for (std::int64_t group = 0; group < problem.batch * problem.heads_kv; ++group)
        fill_top_w(problem, scores.data() + group * problem.seqlen_k,
                   mask.keep.data() + group * mask.rows * problem.seqlen_k);
    } else if (problem.mask == MaskShape::window) {
      fill_alike(problem, mask.keep, fill_window);
    } else if (problem.mask == MaskShape::documents) {
      fill_alike(problem, mask.keep, fill_document);
    } else if (problem.mask == MaskShape::blocks) {
      fill_blocks(problem, seed, mask.keep);
    } else if (problem.mask == MaskShape::keys) {
      fill_keys(problem, seed, mask.keep);
    } else {
      fill_random(problem.keep_probability, seed, mask.keep);
    }
  }
  mask.active_fraction = active_fraction(problem, mask);
  return mask;
}

}  // namespace flashdma_bwd::bench
