// A problem of the backward pass as a test describes it, and the same with host buffers, data and a forward.
//
// Outputs lie in buffers of which every byte that is no element holds a canary and every element a NaN; inputs lie in
// buffers whose other bytes are NaN. So a value that was not written, a write that went astray and a read that went
// astray all show.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "support/mask_encodings.hpp"

namespace flashdma_bwd::testing {

/// Heads of a mask or a bias.
enum class PairHeads { one, kv, query };

/// Which dimensions of a mask or a bias are present; the others are broadcast.
struct PairShape {
  bool batch = true;
  PairHeads heads = PairHeads::query;
  bool rows = true;
  bool columns = true;
};

enum class MaskStructure {
  none,  ///< there is no mask
  keep_all,
  keep_nothing,
  single_pair,        ///< one pair of each head
  alternating_tiles,  ///< a checkerboard of width x width
  empty_rows,         ///< Bernoulli, but a third of the rows and 64 neighbouring ones keep nothing
  empty_columns,      ///< the same of keys
  one_key_per_row,
  one_tile,           ///< all kept keys lie in one tile of 64
  bernoulli,          ///< each pair with a probability
  causal_top_w,       ///< the width best-scored of the keys that causality leaves
  window_with_sinks,  ///< the last width keys and the first 4
  documents,          ///< query and key of the same document, of width keys on average
  block_sparse,       ///< blocks of width x width, each with a probability
};

struct MaskSpec {
  MaskStructure structure = MaskStructure::none;
  PairShape shape = {};
  double probability = 0.5;
  std::int64_t width = 64;
  std::int64_t row_padding = 0;   ///< elements between rows
  bool huge_masked_keys = false;  ///< keys that no query keeps hold values near the largest finite ones
  flashdma_bwd_mask_layout layout = FLASHDMA_BWD_MASK_AUTO;
  /// How the problem's arguments say it; the encoding must be able to.
  flashdma_bwd_mask_encoding encoding = FLASHDMA_BWD_ENCODING_BYTES;
  std::uint16_t block_q = 64, block_k = 64;  ///< of FLASHDMA_BWD_ENCODING_BLOCKS
  bool garbage = false;                      ///< see EncodingSpec
};

struct BiasSpec {
  bool present = false;
  PairShape shape = {};
  bool fp32 = false;          ///< only where rows are broadcast
  double minus_infinity = 0;  ///< probability of an element that masks
  bool gradient = true;
  bool gradient_fp32 = false;
  std::int64_t row_padding = 0;  ///< of the bias
  std::int64_t gradient_row_padding = 0;
};

/// Where the elements of Q, K, V, O, dO and the gradients lie.
struct TensorLayout {
  bool heads_outer = false;      ///< [batch, heads, rows, d] instead of [batch, rows, heads, d]
  std::int64_t row_padding = 0;  ///< elements after each row of a head, a multiple of 8
  std::int64_t batch_padding = 0;
  std::int64_t shift = 0;  ///< elements between a 256-byte boundary and the first element, a multiple of 8
};

struct LseLayout {
  bool heads_inner = false;      ///< [rows, heads] instead of [heads, rows]
  std::int64_t row_padding = 0;  ///< of the inner dimension
  bool base_two = false;
  bool empty_is_plus_infinity = false;
};

struct ProblemSpec {
  std::string name = {};  ///< what the test calls it; text() appends the numbers
  flashdma_bwd_data_type data_type = FLASHDMA_BWD_BF16;
  int head_dim = 64;
  std::int64_t batch = 1, heads = 2, heads_kv = 2;
  std::int64_t seqlen_q = 128, seqlen_k = 128;
  /// Of each sequence; empty: fixed length. Else seqlen_* become their maxima and length_margin.
  std::vector<std::int32_t> lengths_q = {}, lengths_k = {};
  std::int64_t length_margin = 0;
  std::int64_t packed_tail = 0;  ///< packed rows past the last sequence
  float scale = 0;
  float softcap = 0;
  bool causal = false;
  std::int64_t window_left = -1, window_right = -1;
  std::int64_t query_offset = 0, key_offset = 0, global_seqlen_q = 0, global_seqlen_k = 0;
  TensorLayout inputs = {}, outputs = {};
  LseLayout lse = {};
  MaskSpec mask = {};
  BiasSpec bias = {};
  bool deterministic = false;
  bool broadcast_d_out_rows = false;  ///< dO has the same row for all queries: a stride of 0
  bool random_out =
      false;  ///< O is not of this forward, so that dS does not cancel where a row has one key or dBias sums whole rows
  std::uint64_t seed = 1;

  /// The same with batch and lengths as the sequences have them.
  ProblemSpec with_sizes() const;
  /// Everything that tells it from another problem, in one line.
  std::string text() const;
};

/// Bytes with the set of those that belong to elements.
struct Buffer {
  std::string_view name;
  std::vector<std::byte> bytes;
  std::vector<unsigned char> owned;  ///< one for each byte
  std::byte* data = nullptr;         ///< the first element
};

inline constexpr std::byte kPoison{0xff};  ///< of elements of outputs; as fp16, bf16 or fp32 a NaN
inline constexpr std::byte kCanary{0xa5};  ///< of all other bytes of outputs

class Problem {
 public:
  explicit Problem(const ProblemSpec& spec);
  Problem(const Problem&) = delete;
  Problem& operator=(const Problem&) = delete;

  const ProblemSpec& spec() const { return spec_; }
  /// The arguments, with host pointers.
  const flashdma_bwd_arguments& arguments() const { return arguments_; }
  flashdma_bwd_arguments& arguments() { return arguments_; }
  /// The same with the mask as bytes, one a pair, whatever the problem's encoding.
  flashdma_bwd_arguments arguments_with_bytes() const;
  /// All buffers that `arguments` points into.
  std::vector<Buffer*> inputs();
  std::vector<Buffer*> outputs();
  /// Poisons all elements of the outputs and sets the canaries.
  void poison_outputs();
  /// Empty, or which output was written outside its elements, and where.
  std::string damaged_canaries() const;
  /// Rows of Q's and of K's tensors: those of a batch, or all packed ones.
  std::int64_t query_rows() const;
  std::int64_t key_rows() const;
  /// Active pairs over all pairs, after mask, bias and limits; and the Frobenius norm of P over all heads. From the
  /// forward.
  double density() const { return density_; }
  double probability_norm() const { return probability_norm_; }
  /// Root mean squares of the elements of Q, K, V and dO that take part (huge masked keys do not).
  struct Magnitudes {
    double q = 0, k = 0, v = 0, d_out = 0;
  };
  const Magnitudes& magnitudes() const { return magnitudes_; }

 private:
  Buffer make_buffer(std::string_view name, std::int64_t elements, std::int64_t element_bytes, std::int64_t shift);
  flashdma_bwd_tensor make_tensor(Buffer& buffer, std::string_view name, std::int64_t rows, std::int64_t heads,
                                  const TensorLayout& layout, bool one_row);
  flashdma_bwd_pair_tensor make_pair(Buffer& buffer, std::string_view name, const PairShape& shape,
                                     std::int64_t row_padding, std::int64_t element_bytes, std::int32_t type);
  void make_lse();
  void fill();
  void encode();

  ProblemSpec spec_;
  flashdma_bwd_arguments arguments_{};
  flashdma_bwd_pair_tensor mask_bytes_{};
  Buffer q_, k_, v_, out_, d_out_, lse_, mask_, encoded_mask_, bias_, cu_q_, cu_k_;
  Buffer d_q_, d_k_, d_v_, d_bias_;
  double density_ = 0, probability_norm_ = 0;
  Magnitudes magnitudes_;
};

/// The mask of a spec, whose lengths are those of its longest sequences.
BoolMask bool_mask(const ProblemSpec& spec);
/// Whether the encoding of the spec's mask can express it.
bool expresses_mask(const ProblemSpec& spec);

/// The elements of one of the problem's tensors in the order [batch, row, head, column], widened.
std::vector<double> tensor_values(const flashdma_bwd_arguments& arguments, const flashdma_bwd_tensor& tensor,
                                  std::int64_t rows, std::int64_t heads);
/// The elements of a mask, bias or dBias in the order [batch, head, row, column], widened. `bytes`: a mask.
std::vector<double> pair_values(const flashdma_bwd_pair_tensor& tensor, bool bytes = false);

}  // namespace flashdma_bwd::testing
