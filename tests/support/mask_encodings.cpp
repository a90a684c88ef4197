// See mask_encodings.hpp. Bytes that belong to no element are 0xff.
#include "support/mask_encodings.hpp"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "support/random.hpp"

namespace flashdma_bwd::testing {
namespace {

constexpr std::int64_t kIgnoredStride = 77777;  // of dimensions of size 1, which nobody may use
constexpr std::int32_t kLowest = std::numeric_limits<std::int32_t>::min();
constexpr std::int32_t kHighest = std::numeric_limits<std::int32_t>::max();

/// Memory of batch x heads x rows of `columns` elements, each row followed by padding.
EncodedMask make(const BoolMask& mask, flashdma_bwd_mask_encoding encoding, std::int64_t rows, std::int64_t columns,
                 std::int64_t stored_columns, std::int64_t row_padding, std::int64_t element_bytes) {
  EncodedMask encoded;
  encoded.element_bytes = element_bytes;
  flashdma_bwd_pair_tensor& t = encoded.tensor;
  t.encoding = encoding;
  t.batch = mask.batch;
  t.heads = mask.heads;
  t.rows = rows;
  t.columns = columns;
  const std::int64_t row = stored_columns + row_padding;
  t.stride_column = columns > 1 ? 1 : kIgnoredStride;
  t.stride_row = rows > 1 ? row : kIgnoredStride;
  t.stride_head = mask.heads > 1 ? rows * row : kIgnoredStride;
  t.stride_batch = mask.batch > 1 ? mask.heads * rows * row : kIgnoredStride;
  encoded.bytes.assign(static_cast<std::size_t>(mask.batch * mask.heads * rows * row * element_bytes), std::byte{0xff});
  encoded.owned.resize(encoded.bytes.size());
  return encoded;
}

class Writer {
 public:
  Writer(EncodedMask& encoded, std::int64_t b, std::int64_t h)
      : encoded_(encoded),
        start_((encoded.tensor.batch > 1 ? b * encoded.tensor.stride_batch : 0) +
               (encoded.tensor.heads > 1 ? h * encoded.tensor.stride_head : 0)) {}
  template <class Element>
  void write(std::int64_t offset, Element value) {
    const auto at = static_cast<std::size_t>((start_ + offset) * encoded_.element_bytes);
    std::memcpy(encoded_.bytes.data() + at, &value, sizeof value);
    std::memset(encoded_.owned.data() + at, 1, sizeof value);
  }

 private:
  EncodedMask& encoded_;
  std::int64_t start_;
};

std::optional<EncodedMask> as_bits(const BoolMask& mask, const EncodingSpec& spec, Random& random) {
  const std::int64_t row_bytes = (mask.columns + 7) / 8;
  EncodedMask encoded = make(mask, spec.encoding, mask.rows, mask.columns, row_bytes, spec.row_padding, 1);
  encoded.tensor.stride_column = kIgnoredStride;
  for (std::int64_t b = 0; b < mask.batch; ++b)
    for (std::int64_t h = 0; h < mask.heads; ++h) {
      Writer writer(encoded, b, h);
      for (std::int64_t row = 0; row < mask.rows; ++row)
        for (std::int64_t byte = 0; byte < row_bytes; ++byte) {
          unsigned bits = 0;
          for (std::int64_t bit = 0; bit < 8; ++bit) {
            const std::int64_t column = byte * 8 + bit;
            const bool past = column >= mask.columns;
            if (past ? spec.garbage && random.below(2) == 0 : mask.keeps(b, h, row, column)) bits |= 1u << bit;
          }
          writer.write((mask.rows > 1 ? row * encoded.tensor.stride_row : 0) + byte, static_cast<std::uint8_t>(bits));
        }
    }
  return encoded;
}

std::vector<std::int32_t> key_list(const BoolMask& mask, std::int64_t b, std::int64_t h, bool garbage, Random& random) {
  std::vector<std::int32_t> keys;
  for (std::int64_t key = 0; key < mask.seqlen_k; ++key)
    if (mask.keeps(b, h, 0, mask.columns > 1 ? key : 0)) keys.push_back(static_cast<std::int32_t>(key));
  if (!garbage) return keys;
  const std::size_t sorted = keys.size();
  for (std::size_t i = 0; i < sorted; ++i)
    if (random.below(4) == 0) keys.push_back(keys[i]);
  const auto end = static_cast<std::int32_t>(mask.seqlen_k);
  for (const std::int32_t none : {-1, -2, kLowest, kLowest + 1, end, end + 1, end + 64, kHighest}) keys.push_back(none);
  for (std::size_t i = keys.size() - 1; i > 0; --i)
    std::swap(keys[i], keys[static_cast<std::size_t>(random.below(static_cast<std::int64_t>(i) + 1))]);
  return keys;
}

std::optional<EncodedMask> as_key_lists(const BoolMask& mask, const EncodingSpec& spec, Random& random) {
  if (mask.rows != 1) return std::nullopt;
  std::vector<std::vector<std::int32_t>> lists;
  std::size_t longest = 0;
  for (std::int64_t b = 0; b < mask.batch; ++b)
    for (std::int64_t h = 0; h < mask.heads; ++h) {
      lists.push_back(key_list(mask, b, h, spec.garbage, random));
      longest = std::max(longest, lists.back().size());
    }
  const std::int64_t length = static_cast<std::int64_t>(longest) + 3;
  EncodedMask encoded = make(mask, spec.encoding, 1, length, length, spec.row_padding, 4);
  for (std::int64_t b = 0; b < mask.batch; ++b)
    for (std::int64_t h = 0; h < mask.heads; ++h) {
      std::vector<std::int32_t>& list = lists[static_cast<std::size_t>(b * mask.heads + h)];
      list.resize(static_cast<std::size_t>(length), -1);
      Writer writer(encoded, b, h);
      for (std::int64_t i = 0; i < length; ++i) writer.write(i, list[static_cast<std::size_t>(i)]);
    }
  return encoded;
}

struct Interval {
  std::int32_t begin = 0, end = 0;
};

/// The queries that see a key; nothing if they are no interval.
std::optional<Interval> interval_of(const BoolMask& mask, std::int64_t b, std::int64_t h, std::int64_t column) {
  Interval interval;
  const auto keeps = [&](std::int64_t query) { return mask.keeps(b, h, mask.rows > 1 ? query : 0, column); };
  std::int64_t query = 0;
  while (query < mask.seqlen_q && !keeps(query)) ++query;
  interval.begin = static_cast<std::int32_t>(query);
  while (query < mask.seqlen_q && keeps(query)) ++query;
  interval.end = static_cast<std::int32_t>(query);
  for (; query < mask.seqlen_q; ++query)
    if (keeps(query)) return std::nullopt;
  return interval;
}

/// Another way to say the same, which has no sense as an interval of queries.
Interval spoiled(Interval interval, std::int64_t seqlen_q, Random& random) {
  const auto end = static_cast<std::int32_t>(seqlen_q);
  if (interval.begin >= interval.end) {
    const Interval kEmpty[] = {
        {0, 0},        {-1, -1},           {end, 0},       {kHighest, kLowest}, {end, end + 100},
        {-100, 0},     {kLowest, kLowest}, {end / 2, -1},  {end / 2, end / 4},  {kHighest, kHighest},
        {kLowest, -5}, {end, kHighest},    {kHighest, end}};
    return kEmpty[random.below(std::size(kEmpty))];
  }
  const std::int32_t kBefore[] = {0, -1, -1000, kLowest};
  const std::int32_t kBehind[] = {end, end + 1, end + 1000, kHighest};
  if (interval.begin == 0) interval.begin = kBefore[random.below(std::size(kBefore))];
  if (interval.end == end) interval.end = kBehind[random.below(std::size(kBehind))];
  return interval;
}

std::optional<EncodedMask> as_intervals(const BoolMask& mask, const EncodingSpec& spec, Random& random) {
  const std::int64_t unit = 2 + spec.row_padding;
  EncodedMask encoded = make(mask, spec.encoding, mask.columns, 1, unit, 0, 4);
  encoded.tensor.rows = 2;
  encoded.tensor.columns = mask.columns;
  encoded.tensor.stride_row = 1;
  encoded.tensor.stride_column = mask.columns > 1 ? unit : kIgnoredStride;
  for (std::int64_t b = 0; b < mask.batch; ++b)
    for (std::int64_t h = 0; h < mask.heads; ++h) {
      Writer writer(encoded, b, h);
      for (std::int64_t column = 0; column < mask.columns; ++column) {
        std::optional<Interval> interval = interval_of(mask, b, h, column);
        if (!interval) return std::nullopt;
        if (spec.garbage) interval = spoiled(*interval, mask.seqlen_q, random);
        writer.write(column * unit, interval->begin);
        writer.write(column * unit + 1, interval->end);
      }
    }
  return encoded;
}

std::optional<EncodedMask> as_blocks(const BoolMask& mask, const EncodingSpec& spec, Random& random) {
  const std::int64_t block_rows = mask.rows > 1 ? spec.block_q : 1;
  const std::int64_t block_columns = mask.columns > 1 ? spec.block_k : 1;
  const std::int64_t rows = (mask.rows + block_rows - 1) / block_rows;
  const std::int64_t columns = (mask.columns + block_columns - 1) / block_columns;
  EncodedMask encoded = make(mask, spec.encoding, rows, columns, columns, spec.row_padding, 1);
  for (std::int64_t b = 0; b < mask.batch; ++b)
    for (std::int64_t h = 0; h < mask.heads; ++h) {
      for (std::int64_t row = 0; row < mask.rows; ++row)
        for (std::int64_t column = 0; column < mask.columns; ++column)
          if (mask.keeps(b, h, row, column) !=
              mask.keeps(b, h, row / block_rows * block_rows, column / block_columns * block_columns))
            return std::nullopt;
      Writer writer(encoded, b, h);
      for (std::int64_t row = 0; row < rows; ++row)
        for (std::int64_t column = 0; column < columns; ++column) {
          const bool keeps = mask.keeps(b, h, row * block_rows, column * block_columns);
          const auto byte = static_cast<std::uint8_t>(spec.garbage ? 1 + random.below(255) : 1);
          writer.write((rows > 1 ? row * encoded.tensor.stride_row : 0) + column, keeps ? byte : std::uint8_t{0});
        }
    }
  return encoded;
}

std::optional<EncodedMask> as_bytes(const BoolMask& mask, const EncodingSpec& spec, Random& random) {
  EncodingSpec pairs = spec;
  pairs.block_q = pairs.block_k = 1;
  return as_blocks(mask, pairs, random);
}

}  // namespace

const char* encoding_name(flashdma_bwd_mask_encoding encoding) {
  switch (encoding) {
    case FLASHDMA_BWD_ENCODING_BYTES:
      return "bytes";
    case FLASHDMA_BWD_ENCODING_BITS:
      return "bits";
    case FLASHDMA_BWD_ENCODING_KEY_LIST:
      return "key_list";
    case FLASHDMA_BWD_ENCODING_INTERVALS:
      return "intervals";
    case FLASHDMA_BWD_ENCODING_BLOCKS:
      return "blocks";
  }
  return "?";
}

std::optional<EncodedMask> encode_mask(const BoolMask& mask, const EncodingSpec& spec, std::uint64_t seed) {
  Random random(seed);
  switch (spec.encoding) {
    case FLASHDMA_BWD_ENCODING_BYTES:
      return as_bytes(mask, spec, random);
    case FLASHDMA_BWD_ENCODING_BITS:
      return as_bits(mask, spec, random);
    case FLASHDMA_BWD_ENCODING_KEY_LIST:
      return as_key_lists(mask, spec, random);
    case FLASHDMA_BWD_ENCODING_INTERVALS:
      return as_intervals(mask, spec, random);
    case FLASHDMA_BWD_ENCODING_BLOCKS:
      return as_blocks(mask, spec, random);
  }
  return std::nullopt;
}

}  // namespace flashdma_bwd::testing
