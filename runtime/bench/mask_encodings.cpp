// See mask_encodings.hpp.
#include "mask_encodings.hpp"

#include <algorithm>
#include <cstring>

namespace flashdma_bwd::bench {
namespace {

/// Sizes and strides of [batch, heads_kv, rows, columns].
flashdma_bwd_pair_tensor contiguous(const Problem& problem, std::int32_t encoding, std::int64_t rows,
                                    std::int64_t columns, std::int64_t row) {
  flashdma_bwd_pair_tensor tensor{};
  tensor.encoding = encoding;
  tensor.batch = problem.batch;
  tensor.heads = problem.heads_kv;
  tensor.rows = rows;
  tensor.columns = columns;
  tensor.stride_column = 1;
  tensor.stride_row = row;
  tensor.stride_head = rows * row;
  tensor.stride_batch = tensor.heads * tensor.stride_head;
  return tensor;
}

std::vector<std::uint8_t> bytes_of(const std::vector<std::int32_t>& numbers) {
  std::vector<std::uint8_t> bytes(numbers.size() * sizeof(std::int32_t));
  std::memcpy(bytes.data(), numbers.data(), bytes.size());
  return bytes;
}

EncodedMask as_bits(const Problem& problem, const HostMask& mask) {
  const std::int64_t row = (problem.seqlen_k + 63) / 64 * 8;  // whole words
  EncodedMask encoded;
  encoded.tensor = contiguous(problem, FLASHDMA_BWD_ENCODING_BITS, mask.rows, problem.seqlen_k, row);
  const std::int64_t rows = problem.batch * problem.heads_kv * mask.rows;
  encoded.bytes.resize(static_cast<std::size_t>(rows * row));
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t key = 0; key < problem.seqlen_k; ++key)
      if (mask.keep[static_cast<std::size_t>(r * problem.seqlen_k + key)] != 0)
        encoded.bytes[static_cast<std::size_t>(r * row + key / 8)] |= static_cast<std::uint8_t>(1u << (key % 8));
  return encoded;
}

EncodedMask as_key_lists(const Problem& problem, const HostMask& mask) {
  const auto keys = static_cast<std::size_t>(problem.seqlen_k);
  const std::size_t groups = mask.keep.size() / keys;
  std::vector<std::vector<std::int32_t>> lists(groups);
  std::size_t longest = 0;
  for (std::size_t group = 0; group < groups; ++group) {
    for (std::size_t key = 0; key < keys; ++key)
      if (mask.keep[group * keys + key] != 0) lists[group].push_back(static_cast<std::int32_t>(key));
    longest = std::max(longest, lists[group].size());
  }
  std::vector<std::int32_t> padded(groups * longest, -1);
  for (std::size_t group = 0; group < groups; ++group)
    std::copy(lists[group].begin(), lists[group].end(), padded.begin() + static_cast<std::ptrdiff_t>(group * longest));
  EncodedMask encoded;
  const auto length = static_cast<std::int64_t>(longest);
  encoded.tensor = contiguous(problem, FLASHDMA_BWD_ENCODING_KEY_LIST, 1, length, length);
  encoded.bytes = bytes_of(padded);
  return encoded;
}

EncodedMask as_intervals(const Problem& problem, const HostMask& mask) {
  const std::int64_t groups = problem.batch * problem.heads_kv;
  std::vector<std::int32_t> intervals(static_cast<std::size_t>(groups * problem.seqlen_k * 2));
  for (std::int64_t group = 0; group < groups; ++group)
    for (std::int64_t row = 0; row < mask.rows; ++row)
      for (std::int64_t key = 0; key < problem.seqlen_k; ++key) {
        if (mask.keep[static_cast<std::size_t>((group * mask.rows + row) * problem.seqlen_k + key)] == 0) continue;
        std::int32_t* interval = intervals.data() + (group * problem.seqlen_k + key) * 2;
        if (interval[1] == 0) interval[0] = static_cast<std::int32_t>(row);
        interval[1] = static_cast<std::int32_t>(row + 1);
      }
  EncodedMask encoded;
  encoded.tensor = contiguous(problem, FLASHDMA_BWD_ENCODING_INTERVALS, 2, problem.seqlen_k, problem.seqlen_k);
  encoded.tensor.stride_row = 1;
  encoded.tensor.stride_column = 2;
  encoded.bytes = bytes_of(intervals);
  return encoded;
}

EncodedMask as_blocks(const Problem& problem, const HostMask& mask) {
  const std::int64_t rows = (problem.seqlen_q + kMaskBlock - 1) / kMaskBlock;
  const std::int64_t columns = (problem.seqlen_k + kMaskBlock - 1) / kMaskBlock;
  EncodedMask encoded;
  encoded.tensor = contiguous(problem, FLASHDMA_BWD_ENCODING_BLOCKS, rows, columns, columns);
  encoded.block_q = encoded.block_k = kMaskBlock;
  for (std::int64_t group = 0; group < problem.batch * problem.heads_kv; ++group)
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column)
        encoded.bytes.push_back(mask.keep[static_cast<std::size_t>(
            (group * mask.rows + row * kMaskBlock) * problem.seqlen_k + column * kMaskBlock)]);
  return encoded;
}

}  // namespace

EncodedMask encode(const Problem& problem, const HostMask& mask) {
  switch (problem.encoding) {
    case MaskEncoding::bits:
      return as_bits(problem, mask);
    case MaskEncoding::keys:
      return as_key_lists(problem, mask);
    case MaskEncoding::intervals:
      return as_intervals(problem, mask);
    case MaskEncoding::blocks:
      return as_blocks(problem, mask);
    case MaskEncoding::bytes:
      break;
  }
  EncodedMask encoded;
  encoded.tensor = contiguous(problem, FLASHDMA_BWD_ENCODING_BYTES, mask.rows, problem.seqlen_k, problem.seqlen_k);
  encoded.bytes = mask.keep;
  return encoded;
}

}  // namespace flashdma_bwd::bench
