// Tensor maps: how the copy engine finds the tiles of Q, K, V, dO and of a tile bias, and the LSE and D of a tile's
// queries.
#include "hopper/tensor_maps.hpp"

#include <cudaTypedefs.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace flashdma_bwd::hopper {
namespace {

using Encode = PFN_cuTensorMapEncodeTiled_v12000;

/// The driver's function, found through the runtime, so that the library need not link the driver. It is the same for
/// the life of the process.
cudaError_t find_encode(Encode& encode) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (const cudaError_t error =
          cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
      error != cudaSuccess)
    return error;
  if (found != cudaDriverEntryPointSuccess) return cudaErrorNotSupported;
  encode = reinterpret_cast<Encode>(function);
  return cudaSuccess;
}

struct Extents {
  bool packed;
  std::int64_t longest;
  std::int64_t rows;  ///< of the packed tensor
  int columns;
  int heads;
  int batch;  ///< of a tensor that is not packed
};

Extents key_extents(const BackwardParameters& p) {
  return {p.cu_seqlens_k != nullptr, p.seqlen_k, p.key_rows, p.head_dim, p.heads_kv, p.batch};
}
/// Broadcast heads and sequences are one.
Extents pair_extents(const BackwardParameters& p, const PairView& pairs) {
  return {false, p.seqlen_q, 0, p.seqlen_k, p.heads / pairs.heads_per_head, pairs.stride_batch == 0 ? 1 : p.batch};
}
TensorView rows_of(const PairView& pairs) {
  return {pairs.data, pairs.stride_batch, pairs.stride_row, pairs.stride_head};
}

CUtensorMapDataType data_type_of(const BackwardParameters& p) {
  return p.data_type == DataType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
}

cudaError_t encode_map(Encode encode, CUtensorMap& map, const BackwardParameters& p, const TensorView& tensor,
                       const Extents& extents, const MapBox& panel) {
  constexpr std::uint64_t kElement = 2;
  const auto bytes = [](std::int64_t stride) { return static_cast<std::uint64_t>(stride) * kElement; };
  // What a dimension of one element has for a stride does not matter but must be valid. A tensor without rows, of which
  // nothing is copied, may have no address, and any strides.
  const bool empty = extents.longest == 0 || (extents.packed && extents.rows == 0);
  const auto stride_or = [&](std::int64_t size, std::int64_t stride) {
    return size > 1 && !empty ? bytes(stride) : 16;
  };
  const std::int64_t longest = std::max<std::int64_t>(extents.longest, 1);
  const std::int64_t rows = extents.packed ? extents.rows : longest;
  const std::uint64_t row = stride_or(rows, tensor.stride_row);
  const std::int64_t batch = extents.packed ? 1 : extents.batch;
  const cuuint64_t sizes[5] = {static_cast<cuuint64_t>(extents.columns), static_cast<cuuint64_t>(longest),
                               static_cast<cuuint64_t>(rows) + 1, static_cast<cuuint64_t>(extents.heads),
                               static_cast<cuuint64_t>(batch)};
  const cuuint64_t strides[4] = {row, row, stride_or(extents.heads, tensor.stride_head),
                                 stride_or(batch, tensor.stride_batch)};
  const cuuint32_t box[5] = {static_cast<cuuint32_t>(panel.columns), static_cast<cuuint32_t>(panel.rows), 1, 1, 1};
  const cuuint32_t element_strides[5] = {1, 1, 1, 1, 1};
  // Some device memory: LSE and D lie in the workspace, of which there always is some.
  void* const anything = p.statistic_terms != nullptr ? static_cast<void*>(p.statistic_terms) : p.lse_log2;
  void* const address =
      empty ? anything : static_cast<std::byte*>(tensor.data) - longest * static_cast<std::int64_t>(row);
  const CUresult result =
      encode(&map, data_type_of(p), 5, address, sizes, strides, box, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE,
             panel.columns == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
             : panel.columns == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                   : CU_TENSOR_MAP_SWIZZLE_32B,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

/// Of the gradient of a tile bias.
cudaError_t encode_gradient_map(Encode encode, CUtensorMap& map, const BackwardParameters& p, const MapBox& panel) {
  const auto bytes = [](std::int64_t stride) { return static_cast<cuuint64_t>(stride) * 2; };
  const cuuint64_t sizes[4] = {static_cast<cuuint64_t>(p.seqlen_k), static_cast<cuuint64_t>(p.seqlen_q),
                               static_cast<cuuint64_t>(p.heads), static_cast<cuuint64_t>(p.batch)};
  // A dimension of one element has the stride 0, which would not be valid.
  const cuuint64_t strides[3] = {bytes(p.d_bias.stride_row), p.heads > 1 ? bytes(p.d_bias.stride_head) : 16,
                                 p.batch > 1 ? bytes(p.d_bias.stride_batch) : 16};
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(panel.columns), static_cast<cuuint32_t>(panel.rows), 1, 1};
  const cuuint32_t element_strides[4] = {1, 1, 1, 1};
  const CUresult result = encode(&map, data_type_of(p), 4, p.d_bias.data, sizes, strides, box, element_strides,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                                 CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

/// Of LSE or D.
cudaError_t encode_statistics_map(Encode encode, CUtensorMap& map, const BackwardParameters& p, float* values,
                                  int box_rows) {
  // Without queries there is nothing to copy, but a map must be valid.
  const cuuint64_t sizes[2] = {static_cast<cuuint64_t>(std::max<std::int64_t>(p.scratch_rows, kScratchRowAlignment)),
                               static_cast<cuuint64_t>(p.heads)};
  const cuuint64_t strides[1] = {sizes[0] * sizeof(float)};
  const cuuint32_t box[2] = {static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t element_strides[2] = {1, 1};
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_FLOAT32, 2, values, sizes, strides, box, element_strides,
                                 CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

/// Of both as terms.
cudaError_t encode_terms_map(Encode encode, CUtensorMap& map, const BackwardParameters& p, int box_rows) {
  constexpr cuuint64_t kTerms = sizeof(StatisticTerms) / 2;
  const cuuint64_t sizes[3] = {kTerms,
                               static_cast<cuuint64_t>(std::max<std::int64_t>(p.scratch_rows, kScratchRowAlignment)),
                               static_cast<cuuint64_t>(p.heads)};
  const cuuint64_t strides[2] = {sizeof(StatisticTerms), sizes[1] * sizeof(StatisticTerms)};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(kTerms), static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t element_strides[3] = {1, 1, 1};
  const CUresult result = encode(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 3, p.statistic_terms, sizes, strides, box,
                                 element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

/// Of the words of masks.
cudaError_t encode_mask_map(Encode encode, CUtensorMap& map, const BackwardParameters& p, const MapBox& box_of_words) {
  const std::int64_t masks = std::int64_t{p.mask_batch_stride != 0 ? p.batch : 1} * (p.heads / p.mask_heads_per_head);
  const cuuint64_t queries = static_cast<cuuint64_t>(p.query_atoms) * kMaskAtom;
  const cuuint64_t sizes[3] = {queries, static_cast<cuuint64_t>(p.mask_head_stride / p.query_atoms),
                               static_cast<cuuint64_t>(masks)};
  const cuuint64_t strides[2] = {queries * sizeof(std::uint64_t), queries * sizeof(std::uint64_t) * sizes[1]};
  const cuuint32_t box[3] = {static_cast<cuuint32_t>(box_of_words.columns), static_cast<cuuint32_t>(box_of_words.rows),
                             1};
  const cuuint32_t element_strides[3] = {1, 1, 1};
  const CUresult result =
      encode(&map, CU_TENSOR_MAP_DATA_TYPE_UINT64, 3, const_cast<std::uint64_t*>(p.mask_words), sizes, strides, box,
             element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_NONE,
             CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace

cudaError_t encode_tensor_maps(TensorMaps& maps, const BackwardParameters& p, const MapBoxes& boxes) {
  Encode encode = nullptr;
  if (const cudaError_t error = find_encode(encode); error != cudaSuccess) return error;
  const Extents queries{p.cu_seqlens_q != nullptr, p.seqlen_q, p.packed_rows_q, p.head_dim, p.heads, p.batch};
  const Extents keys = key_extents(p);
  cudaError_t error = cudaSuccess;
  const auto run = [&](CUtensorMap& map, const TensorView& tensor, const Extents& extents, const MapBox& panel) {
    if (error == cudaSuccess) error = encode_map(encode, map, p, tensor, extents, panel);
  };
  run(maps.q, p.q, queries, boxes.query);
  run(maps.d_out, p.d_out, queries, boxes.query);
  run(maps.k, p.k, keys, boxes.key);
  run(maps.v, p.v, keys, boxes.value);
  run(maps.d_k, p.d_k, keys, boxes.key_gradient);
  run(maps.d_v, p.d_v, keys, boxes.key_gradient);
  if (p.statistic_terms != nullptr) {
    if (error == cudaSuccess) error = encode_terms_map(encode, maps.terms, p, boxes.statistics);
  } else {
    for (const auto& [map, values] : {std::pair{&maps.lse, p.lse_log2}, std::pair{&maps.row_dot, p.row_dot}})
      if (error == cudaSuccess) error = encode_statistics_map(encode, *map, p, values, boxes.statistics);
  }
  if (error == cudaSuccess && boxes.mask.rows != 0 && p.mask_words != nullptr && p.query_atoms > 0)
    error = encode_mask_map(encode, maps.mask, p, boxes.mask);
  if (boxes.pair.rows == 0) return error;
  run(maps.bias, rows_of(p.bias), pair_extents(p, p.bias), boxes.pair);
  if (error == cudaSuccess && p.bias_gradient == BiasGradient::store_16bit)
    error = encode_gradient_map(encode, maps.d_bias, p, boxes.pair);
  return error;
}

cudaError_t encode_query_gradient_maps(QueryGradientMaps& maps, const BackwardParameters& p, const MapBox& d_bias,
                                       const MapBox& key) {
  Encode encode = nullptr;
  if (const cudaError_t error = find_encode(encode); error != cudaSuccess) return error;
  if (const cudaError_t error =
          encode_map(encode, maps.d_bias, p, rows_of(p.d_bias), pair_extents(p, p.d_bias), d_bias);
      error != cudaSuccess)
    return error;
  return encode_map(encode, maps.k, p, p.k, key_extents(p), key);
}

}  // namespace flashdma_bwd::hopper
