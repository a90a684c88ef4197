// Layouts: where the elements of a problem's tensors lie in their buffers.
#include "support/problem.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>
#include <sstream>
#include <stdexcept>

#include "reference/number_formats.hpp"

namespace flashdma_bwd::testing {
namespace {

constexpr std::int64_t kGuardBytes = 256;       // before and after the elements
constexpr std::int64_t kIgnoredStride = 77777;  // of dimensions of size 1, which nobody may use

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

std::int64_t heads_of(PairHeads heads, const ProblemSpec& spec) {
  return heads == PairHeads::one ? 1 : heads == PairHeads::kv ? spec.heads_kv : spec.heads;
}

std::string_view structure_name(MaskStructure structure) {
  switch (structure) {
    case MaskStructure::none:
      return "none";
    case MaskStructure::keep_all:
      return "keep_all";
    case MaskStructure::keep_nothing:
      return "keep_nothing";
    case MaskStructure::single_pair:
      return "single_pair";
    case MaskStructure::alternating_tiles:
      return "alternating_tiles";
    case MaskStructure::empty_rows:
      return "empty_rows";
    case MaskStructure::empty_columns:
      return "empty_columns";
    case MaskStructure::one_key_per_row:
      return "one_key_per_row";
    case MaskStructure::one_tile:
      return "one_tile";
    case MaskStructure::bernoulli:
      return "bernoulli";
    case MaskStructure::causal_top_w:
      return "causal_top_w";
    case MaskStructure::window_with_sinks:
      return "window_with_sinks";
    case MaskStructure::documents:
      return "documents";
    case MaskStructure::block_sparse:
      return "block_sparse";
  }
  return "?";
}

std::string shape_text(const PairShape& shape) {
  std::string text = shape.batch ? "[b," : "[1,";
  text += shape.heads == PairHeads::one ? "1," : shape.heads == PairHeads::kv ? "hk," : "h,";
  text += shape.rows ? "sq," : "1,";
  return text + (shape.columns ? "sk]" : "1]");
}

/// Calls visit(byte offset from the first element) for each element.
template <class Visit>
void for_each_element(const flashdma_bwd_pair_tensor& tensor, const Visit& visit) {
  for (std::int64_t b = 0; b < tensor.batch; ++b)
    for (std::int64_t h = 0; h < tensor.heads; ++h)
      for (std::int64_t r = 0; r < tensor.rows; ++r)
        for (std::int64_t c = 0; c < tensor.columns; ++c)
          visit((tensor.batch > 1 ? b * tensor.stride_batch : 0) + (tensor.heads > 1 ? h * tensor.stride_head : 0) +
                (tensor.rows > 1 ? r * tensor.stride_row : 0) + (tensor.columns > 1 ? c * tensor.stride_column : 0));
}

void own(Buffer& buffer, std::int64_t offset, std::int64_t bytes) {
  std::memset(buffer.owned.data() + (buffer.data - buffer.bytes.data()) + offset, 1, index(bytes));
}

std::vector<std::int32_t> offsets_of(const std::vector<std::int32_t>& lengths) {
  std::vector<std::int32_t> offsets(lengths.size() + 1);
  std::partial_sum(lengths.begin(), lengths.end(), offsets.begin() + 1);
  return offsets;
}

}  // namespace

std::string ProblemSpec::text() const {
  std::ostringstream text;
  if (!name.empty()) text << name << ' ';
  text << (data_type == FLASHDMA_BWD_FP16 ? "fp16" : "bf16") << " d" << head_dim << " b" << batch << " h" << heads
       << '/' << heads_kv << " sq" << seqlen_q << " sk" << seqlen_k;
  if (!lengths_q.empty()) text << " varlen";
  if (packed_tail > 0) text << " tail=" << packed_tail;
  if (scale != 0) text << " scale=" << scale;
  if (softcap != 0) text << " softcap=" << softcap;
  if (causal) text << " causal";
  if (window_left >= 0 || window_right >= 0) text << " window=" << window_left << ',' << window_right;
  if (query_offset != 0 || key_offset != 0) text << " offset=" << query_offset << ',' << key_offset;
  if (global_seqlen_q != 0 || global_seqlen_k != 0) text << " global=" << global_seqlen_q << ',' << global_seqlen_k;
  if (mask.structure != MaskStructure::none) {
    text << " mask=" << structure_name(mask.structure) << shape_text(mask.shape) << " p=" << mask.probability
         << " w=" << mask.width;
    if (mask.huge_masked_keys) text << " huge";
    constexpr const char* kLayouts[] = {"", " natural", " compacted", " reordered"};
    text << kLayouts[mask.layout];
    if (mask.encoding != FLASHDMA_BWD_ENCODING_BYTES) text << " as " << encoding_name(mask.encoding);
    if (mask.encoding == FLASHDMA_BWD_ENCODING_BLOCKS) text << ' ' << mask.block_q << 'x' << mask.block_k;
    if (mask.garbage) text << " with garbage";
  }
  if (bias.present) {
    text << " bias=" << (bias.fp32 ? "fp32" : "") << shape_text(bias.shape);
    if (bias.minus_infinity > 0) text << " -inf=" << bias.minus_infinity;
    if (!bias.gradient) text << " no_dbias";
    if (bias.gradient_fp32) text << " dbias=fp32";
  }
  if (inputs.heads_outer) text << " bhsd";
  if (lse.heads_inner) text << " lse=rows,heads";
  if (lse.base_two) text << " lse=base2";
  if (deterministic) text << " deterministic";
  if (random_out) text << " random_out";
  if (seed != 1) text << " seed=" << seed;
  return text.str();
}

Buffer Problem::make_buffer(std::string_view name, std::int64_t elements, std::int64_t element_bytes,
                            std::int64_t shift) {
  Buffer buffer;
  buffer.name = name;
  const std::int64_t front = kGuardBytes + shift * element_bytes;
  buffer.bytes.assign(index(front + elements * element_bytes + kGuardBytes), kPoison);
  buffer.owned.resize(buffer.bytes.size());
  buffer.data = buffer.bytes.data() + front;
  return buffer;
}

flashdma_bwd_tensor Problem::make_tensor(Buffer& buffer, std::string_view name, std::int64_t rows, std::int64_t heads,
                                         const TensorLayout& layout, bool one_row) {
  const std::int64_t stored_rows = one_row ? 1 : rows;
  const std::int64_t unit = spec_.head_dim + layout.row_padding;
  flashdma_bwd_tensor tensor{};
  tensor.stride_head = layout.heads_outer ? stored_rows * unit : unit;
  tensor.stride_row = one_row ? 0 : layout.heads_outer ? unit : heads * unit;
  tensor.stride_batch = stored_rows * heads * unit + layout.batch_padding;
  const std::int64_t batches = spec_.lengths_q.empty() ? spec_.batch : 1;
  if (stored_rows == 1 && !one_row && spec_.lengths_q.empty()) tensor.stride_row = kIgnoredStride;
  // The last unit's padding and the last batch's lie within the buffer too: they are canaries.
  buffer = make_buffer(name, batches * tensor.stride_batch, 2, layout.shift);
  tensor.data = buffer.data;
  for (std::int64_t b = 0; b < batches; ++b)
    for (std::int64_t h = 0; h < heads; ++h)
      for (std::int64_t r = 0; r < stored_rows; ++r)
        own(buffer, 2 * (b * tensor.stride_batch + h * tensor.stride_head + r * tensor.stride_row), 2 * spec_.head_dim);
  return tensor;
}

flashdma_bwd_pair_tensor Problem::make_pair(Buffer& buffer, std::string_view name, const PairShape& shape,
                                            std::int64_t row_padding, std::int64_t element_bytes, std::int32_t type) {
  flashdma_bwd_pair_tensor tensor{};
  tensor.data_type = type;
  tensor.batch = shape.batch ? spec_.batch : 1;
  tensor.heads = heads_of(shape.heads, spec_);
  tensor.rows = shape.rows ? spec_.seqlen_q : 1;
  tensor.columns = shape.columns ? spec_.seqlen_k : 1;
  const std::int64_t row = tensor.columns + row_padding;
  tensor.stride_column = tensor.columns > 1 ? 1 : kIgnoredStride;
  tensor.stride_row = tensor.rows > 1 ? row : kIgnoredStride;
  tensor.stride_head = tensor.heads > 1 ? tensor.rows * row : kIgnoredStride;
  tensor.stride_batch = tensor.batch > 1 ? tensor.heads * tensor.rows * row : kIgnoredStride;
  buffer = make_buffer(name, tensor.batch * tensor.heads * tensor.rows * row, element_bytes, 0);
  tensor.data = buffer.data;
  for_each_element(tensor, [&](std::int64_t offset) { own(buffer, offset * element_bytes, element_bytes); });
  return tensor;
}

void Problem::make_lse() {
  const std::int64_t rows = query_rows();
  const std::int64_t batches = spec_.lengths_q.empty() ? spec_.batch : 1;
  const std::int64_t inner = (spec_.lse.heads_inner ? spec_.heads : rows) + spec_.lse.row_padding;
  arguments_.lse_stride_row = spec_.lse.heads_inner ? inner : 1;
  arguments_.lse_stride_head = spec_.lse.heads_inner ? 1 : inner;
  arguments_.lse_stride_batch = inner * (spec_.lse.heads_inner ? rows : spec_.heads);
  lse_ = make_buffer("lse", batches * arguments_.lse_stride_batch, 4, 0);
  arguments_.lse = reinterpret_cast<const float*>(lse_.data);
  arguments_.lse_base_two = spec_.lse.base_two ? 1 : 0;
}

ProblemSpec ProblemSpec::with_sizes() const {
  ProblemSpec spec = *this;
  if (lengths_q.empty()) return spec;
  spec.batch = static_cast<std::int64_t>(lengths_q.size());
  spec.seqlen_q = *std::max_element(lengths_q.begin(), lengths_q.end()) + length_margin;
  spec.seqlen_k = *std::max_element(lengths_k.begin(), lengths_k.end()) + length_margin;
  return spec;
}

Problem::Problem(const ProblemSpec& spec) : spec_(spec.with_sizes()) {
  flashdma_bwd_arguments& a = arguments_;
  a.struct_size = sizeof(flashdma_bwd_arguments);
  a.flags = spec_.deterministic ? FLASHDMA_BWD_FLAG_DETERMINISTIC : 0u;
  a.data_type = spec_.data_type;
  a.head_dim = spec_.head_dim;
  a.batch = spec_.batch;
  a.heads = spec_.heads;
  a.heads_kv = spec_.heads_kv;
  a.seqlen_q = spec_.seqlen_q;
  a.seqlen_k = spec_.seqlen_k;
  a.scale = spec_.scale;
  a.softcap = spec_.softcap;
  a.causal = spec_.causal ? 1 : 0;
  a.window_left = spec_.window_left;
  a.window_right = spec_.window_right;
  a.query_offset = spec_.query_offset;
  a.key_offset = spec_.key_offset;
  a.global_seqlen_q = spec_.global_seqlen_q;
  a.global_seqlen_k = spec_.global_seqlen_k;
  const auto make_offsets = [](Buffer& buffer, std::string_view name, const std::vector<std::int32_t>& lengths) {
    const std::vector<std::int32_t> offsets = offsets_of(lengths);
    buffer.name = name;
    buffer.bytes.resize(offsets.size() * sizeof(std::int32_t));
    std::memcpy(buffer.bytes.data(), offsets.data(), buffer.bytes.size());
    buffer.data = buffer.bytes.data();
    return reinterpret_cast<const std::int32_t*>(buffer.data);
  };
  if (!spec_.lengths_q.empty()) {
    a.cu_seqlens_q = make_offsets(cu_q_, "cu_seqlens_q", spec_.lengths_q);
    a.cu_seqlens_k = make_offsets(cu_k_, "cu_seqlens_k", spec_.lengths_k);
    a.total_q = query_rows();
    a.total_k = key_rows();
  }
  a.q = make_tensor(q_, "q", query_rows(), spec_.heads, spec_.inputs, false);
  a.k = make_tensor(k_, "k", key_rows(), spec_.heads_kv, spec_.inputs, false);
  a.v = make_tensor(v_, "v", key_rows(), spec_.heads_kv, spec_.inputs, false);
  a.out = make_tensor(out_, "out", query_rows(), spec_.heads, spec_.inputs, false);
  a.d_out = make_tensor(d_out_, "d_out", query_rows(), spec_.heads, spec_.inputs, spec_.broadcast_d_out_rows);
  a.d_q = make_tensor(d_q_, "d_q", query_rows(), spec_.heads, spec_.outputs, false);
  a.d_k = make_tensor(d_k_, "d_k", key_rows(), spec_.heads_kv, spec_.outputs, false);
  a.d_v = make_tensor(d_v_, "d_v", key_rows(), spec_.heads_kv, spec_.outputs, false);
  make_lse();
  a.mask_layout = spec_.mask.layout;
  if (spec_.mask.structure != MaskStructure::none)
    a.mask = make_pair(mask_, "mask", spec_.mask.shape, spec_.mask.row_padding, 1, 0);
  if (spec_.bias.present) {
    const std::int32_t type = spec_.bias.fp32 ? FLASHDMA_BWD_FP32 : spec_.data_type;
    a.bias = make_pair(bias_, "bias", spec_.bias.shape, spec_.bias.row_padding, element_bytes(type), type);
    if (spec_.bias.gradient) {
      const std::int32_t gradient_type = spec_.bias.gradient_fp32 ? FLASHDMA_BWD_FP32 : type;
      a.d_bias = make_pair(d_bias_, "d_bias", spec_.bias.shape, spec_.bias.gradient_row_padding,
                           element_bytes(gradient_type), gradient_type);
    }
  }
  fill();
  encode();
  poison_outputs();
}

std::int64_t Problem::query_rows() const {
  return spec_.lengths_q.empty() ? spec_.seqlen_q
                                 : std::accumulate(spec_.lengths_q.begin(), spec_.lengths_q.end(), spec_.packed_tail);
}

std::int64_t Problem::key_rows() const {
  return spec_.lengths_k.empty() ? spec_.seqlen_k
                                 : std::accumulate(spec_.lengths_k.begin(), spec_.lengths_k.end(), spec_.packed_tail);
}

void Problem::encode() {
  mask_bytes_ = arguments_.mask;
  const MaskSpec& mask = spec_.mask;
  if (mask_bytes_.data == nullptr || mask.encoding == FLASHDMA_BWD_ENCODING_BYTES) return;
  const std::optional<EncodedMask> encoded = encode_mask(
      bool_mask(spec_), {mask.encoding, mask.block_q, mask.block_k, mask.garbage, mask.row_padding}, spec_.seed);
  if (!encoded) throw std::logic_error(std::string(encoding_name(mask.encoding)) + " cannot express " + spec_.text());
  encoded_mask_ = make_buffer("mask", static_cast<std::int64_t>(encoded->bytes.size()), 1, 0);
  std::copy(encoded->bytes.begin(), encoded->bytes.end(), encoded_mask_.data);
  std::copy(encoded->owned.begin(), encoded->owned.end(),
            encoded_mask_.owned.begin() + (encoded_mask_.data - encoded_mask_.bytes.data()));
  arguments_.mask = encoded->tensor;
  arguments_.mask.data = encoded_mask_.data;
  if (mask.encoding == FLASHDMA_BWD_ENCODING_BLOCKS) {
    arguments_.mask_block_q = mask.block_q;
    arguments_.mask_block_k = mask.block_k;
  }
}

flashdma_bwd_arguments Problem::arguments_with_bytes() const {
  flashdma_bwd_arguments arguments = arguments_;
  if (arguments.mask.data == encoded_mask_.data && encoded_mask_.data != nullptr) {
    arguments.mask = mask_bytes_;
    arguments.mask_block_q = arguments.mask_block_k = 0;
  }
  return arguments;
}

std::vector<Buffer*> Problem::inputs() {
  std::vector<Buffer*> buffers;
  for (Buffer* buffer : {&q_, &k_, &v_, &out_, &d_out_, &lse_, &mask_, &encoded_mask_, &bias_, &cu_q_, &cu_k_})
    if (!buffer->bytes.empty() && !(buffer == &mask_ && !encoded_mask_.bytes.empty())) buffers.push_back(buffer);
  return buffers;
}

std::vector<Buffer*> Problem::outputs() {
  std::vector<Buffer*> buffers;
  for (Buffer* buffer : {&d_q_, &d_k_, &d_v_, &d_bias_})
    if (!buffer->bytes.empty()) buffers.push_back(buffer);
  return buffers;
}

void Problem::poison_outputs() {
  for (Buffer* buffer : outputs())
    for (std::size_t i = 0; i < buffer->bytes.size(); ++i) buffer->bytes[i] = buffer->owned[i] != 0 ? kPoison : kCanary;
}

std::string Problem::damaged_canaries() const {
  for (const Buffer* buffer : {&d_q_, &d_k_, &d_v_, &d_bias_}) {
    for (std::size_t i = 0; i < buffer->bytes.size(); ++i) {
      if (buffer->owned[i] != 0 || buffer->bytes[i] == kCanary) continue;
      const std::ptrdiff_t from_data = buffer->bytes.data() + i - buffer->data;
      return std::string(buffer->name) + " was written outside its elements, at byte " + std::to_string(from_data);
    }
  }
  return {};
}

std::vector<double> tensor_values(const flashdma_bwd_arguments& arguments, const flashdma_bwd_tensor& tensor,
                                  std::int64_t rows, std::int64_t heads) {
  const std::int64_t batches = arguments.cu_seqlens_q == nullptr ? arguments.batch : 1;
  std::vector<double> values;
  values.reserve(index(batches * rows * heads * arguments.head_dim));
  for (std::int64_t b = 0; b < batches; ++b) {
    for (std::int64_t r = 0; r < rows; ++r) {
      for (std::int64_t h = 0; h < heads; ++h) {
        const std::int64_t start = b * tensor.stride_batch + r * tensor.stride_row + h * tensor.stride_head;
        for (int c = 0; c < arguments.head_dim; ++c)
          values.push_back(static_cast<double>(load_element(tensor.data, arguments.data_type, start + c)));
      }
    }
  }
  return values;
}

std::vector<double> pair_values(const flashdma_bwd_pair_tensor& tensor, bool bytes) {
  std::vector<double> values;
  values.reserve(index(tensor.batch * tensor.heads * tensor.rows * tensor.columns));
  for_each_element(tensor, [&](std::int64_t offset) {
    values.push_back(bytes ? static_cast<double>(static_cast<const std::uint8_t*>(tensor.data)[offset])
                           : static_cast<double>(load_element(tensor.data, tensor.data_type, offset)));
  });
  return values;
}

}  // namespace flashdma_bwd::testing
