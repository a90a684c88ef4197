// What is benchmarked: a problem as one line of text, and the named sets of them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace flashdma_bwd::bench {

enum class BiasShape {
  none,
  key,   ///< [b, h_kv, 1, sk]
  tile,  ///< [b, h_kv, sq, sk]
};

enum class MaskShape {
  none,
  top_w,      ///< [b, h_kv, sq, sk]: each query keeps the w best-scored of the keys that it may see; a key bias is the
              ///< score
  random,     ///< [b, h_kv, sq, sk]: each pair is kept with a probability
  keys,       ///< [b, h_kv, 1, sk]: a share of the keys, anywhere, is kept for all queries
  window,     ///< [b, h_kv, sq, sk]: the last width keys up to the query's own and the first 4
  documents,  ///< the same: queries and keys of the same document, all of which have width keys
  blocks,     ///< the same: each block of 128 x 128 is kept with a probability
};

/// How the mask is handed over; see flashdma_bwd_mask_encoding.
enum class MaskEncoding {
  bytes,
  bits,
  keys,       ///< of MaskShape::keys
  intervals,  ///< of MaskShape::top_w, window and documents
  blocks,     ///< of MaskShape::blocks
};

/// Queries and keys of a block of MaskShape::blocks.
inline constexpr int kMaskBlock = 128;
/// The first keys, which every query of MaskShape::window keeps.
inline constexpr std::int64_t kWindowSinks = 4;

/// A problem whose sequences are of one length. Text form: `b=1 h=16 hk=4 d=128 s=8192 causal bias=key mask=topw:1024`.
struct Problem {
  std::int64_t batch = 1;
  std::int64_t heads = 16;
  std::int64_t heads_kv = 16;
  std::int64_t head_dim = 128;
  std::int64_t seqlen_q = 4096;
  std::int64_t seqlen_k = 4096;
  bool bf16 = true;
  bool causal = false;
  std::int64_t window = 0;  ///< of a causal problem: only a query's last so many keys; 0: all up to its own
  bool deterministic = false;
  bool packed = false;  ///< handed over as variable-length sequences, one behind the other
  double softcap = 0;
  BiasShape bias = BiasShape::none;
  MaskShape mask = MaskShape::none;
  MaskEncoding encoding = MaskEncoding::bytes;
  std::int64_t top_w = 0;       ///< of MaskShape::top_w
  double keep_probability = 1;  ///< of MaskShape::random and blocks; of keys the share
  std::int64_t width = 0;       ///< of MaskShape::window and documents

  /// 10 * b * h * sq * sk * d, half of it when causal, and of a window the pairs that it leaves: the five matrix
  /// products of a dense backward.
  double dense_flops() const;
};

/// Reads a problem. Returns false and says in `error` what is wrong with which word.
bool parse_problem(std::string_view text, Problem& problem, std::string& error);

/// Writes a problem as `parse_problem` reads it; what is at its default is left out, except sizes.
std::string problem_text(const Problem& problem);

/// Names of the sets, for help texts.
inline constexpr std::string_view kSetNames[] = {"dense",    "masked", "dynamic", "small",
                                                 "features", "sparse", "density", "plans"};

/// The problems of a set; empty if there is no such set.
std::vector<Problem> problem_set(std::string_view name);

}  // namespace flashdma_bwd::bench
