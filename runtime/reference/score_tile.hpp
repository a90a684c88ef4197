// A tile of 64 queries x 64 keys of one query head: probabilities P, score gradients dS and, behind the softcap, g.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <cstdint>
#include <vector>

#include "reference/mask_pairs.hpp"
#include "reference/visibility.hpp"

namespace flashdma_bwd {

/// Queries and keys of a tile.
inline constexpr int kTile = 64;

/// A thread's working memory for one query head of one sequence. Rows past the end of the sequence are zero.
class ScoreTile {
 public:
  explicit ScoreTile(const flashdma_bwd_arguments& arguments);

  /// Reads Q, dO, the logsumexp and D of queries [query, query + 64) of a head.
  void load_queries(const Sequence& sequence, std::int64_t head, std::int64_t query);
  /// Reads K and V of keys [key, key + 64).
  void load_keys(const Sequence& sequence, std::int64_t head_kv, std::int64_t key);
  /// Computes p, ds and g of the loaded tile. False: all pairs are masked, and p, ds and g are not valid.
  bool compute();

  std::int64_t query() const { return query_; }
  std::int64_t key() const { return key_; }
  int queries() const { return queries_; }
  int keys() const { return keys_; }
  const double* q() const { return q_.data(); }          ///< [64][head_dim]
  const double* d_out() const { return d_out_.data(); }  ///< [64][head_dim]
  const double* k() const { return k_.data(); }          ///< [64][head_dim]
  const double* p() const { return p_.data(); }          ///< [64 queries][64 keys], 0 where masked
  const double* ds() const { return ds_.data(); }
  const double* g() const { return g_.data(); }

 private:
  void load_rows(std::vector<double>& rows, const flashdma_bwd_tensor& tensor, std::int64_t offset, int count) const;
  bool find_active();

  const flashdma_bwd_arguments& arguments_;
  MaskPairs mask_;
  PairAddress bias_;
  double scale_ = 0;
  int head_dim_ = 0;
  Sequence sequence_;
  std::int64_t head_ = 0, query_ = 0, key_ = 0;
  int queries_ = 0, keys_ = 0;
  std::vector<double> q_, d_out_, k_, v_, out_, k_transposed_, v_transposed_, p_, ds_, g_;
  std::vector<double> lse_, row_dot_;
  std::vector<unsigned char> active_;
};

/// Whether causality and the window leave any pair of the tile that begins at (query, key).
bool tile_reachable(const flashdma_bwd_arguments& arguments, const Sequence& sequence, std::int64_t query,
                    std::int64_t key);

/// The score scale that the arguments ask for.
double score_scale(const flashdma_bwd_arguments& arguments);

}  // namespace flashdma_bwd
