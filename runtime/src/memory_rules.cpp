// The rules of the memory: addresses, strides, and whether they reach every element and no element twice.
#include <algorithm>
#include <array>
#include <cstdint>
#include <initializer_list>
#include <limits>
#include <span>
#include <vector>

#include "argument_rules.hpp"
#include "arguments.hpp"

namespace flashdma_bwd {
namespace {

constexpr std::int64_t kLongestRowOffset = std::numeric_limits<std::int32_t>::max();

enum class Role { input, output };

/// A dimension of a tensor as memory sees it. Names are put together only when a rule is violated.
struct Dimension {
  const char* tensor = "";
  const char* name = "";  ///< of its stride
  std::int64_t size = 0;
  std::int64_t stride = 0;

  std::string stride_name() const { return std::string(tensor) + name; }
};

std::string size_and_stride(const Dimension& d) {
  return d.stride_name() + ' ' + std::to_string(d.stride) + " for " + std::to_string(d.size);
}

Check check_address(const char* tensor, const char* field, const void* data, std::uintptr_t alignment) {
  const std::uintptr_t misalignment = reinterpret_cast<std::uintptr_t>(data) % alignment;
  if (data != nullptr && misalignment == 0) return {};
  const std::string name = std::string(tensor) + field;
  if (data == nullptr) return invalid(name + " is NULL: a tensor that has elements needs its memory");
  return invalid(name + " must be " + std::to_string(alignment) + "-byte aligned: its address is " +
                 std::to_string(misalignment) + " bytes past a multiple of " + std::to_string(alignment));
}

/// Strides that are not negative and whose furthest element has an offset of 63 bits less what its bytes take.
Check check_reach(const char* name, std::span<const Dimension> dimensions) {
  std::int64_t furthest = 0;
  for (const Dimension& d : dimensions) {
    if (d.size <= 1) continue;
    if (d.stride < 0) return invalid(is(d.stride_name(), d.stride) + "a stride must be at least 0");
    std::int64_t offset = 0;
    if (__builtin_mul_overflow(d.size - 1, d.stride, &offset) || __builtin_add_overflow(furthest, offset, &furthest) ||
        furthest > std::numeric_limits<std::int64_t>::max() / 8)
      return invalid(std::string(name) + " cannot be addressed: " + size_and_stride(d) +
                     " reaches past 2^63 bytes; check the strides, which count elements");
  }
  return {};
}

/// Outputs: no element may have two positions. Dimensions must nest: the stride of each is at least what the ones with
/// smaller strides span.
Check check_no_overlap(const char* name, std::span<Dimension> dimensions, std::int64_t innermost) {
  std::sort(dimensions.begin(), dimensions.end(),
            [](const Dimension& a, const Dimension& b) { return a.stride < b.stride; });
  std::int64_t span = innermost;
  for (const Dimension& d : dimensions) {
    if (d.size <= 1) continue;
    if (d.stride < span)
      return invalid(std::string(name) + " overlaps itself: " + size_and_stride(d) +
                     " elements, the dimensions inside span " + std::to_string(span) +
                     "; an output needs an element of its own at every position");
    span += (d.size - 1) * d.stride;
  }
  return {};
}

/// One of Q, K, V, O, dO, dQ, dK, dV.
Check check_tensor(const char* name, const flashdma_bwd_tensor& t, Role role, const flashdma_bwd_arguments& a,
                   bool of_queries) {
  const bool packed = a.cu_seqlens_q != nullptr;
  const std::int64_t longest = of_queries ? a.seqlen_q : a.seqlen_k;
  const std::int64_t rows = packed ? (of_queries ? a.total_q : a.total_k) : longest;
  const std::int64_t heads = of_queries ? a.heads : a.heads_kv;
  if (rows == 0 || heads == 0 || a.batch == 0) return {};
  if (Check failure = check_address(name, ".data", t.data, 16)) return failure;
  std::array<Dimension, 3> dimensions{Dimension{name, ".stride_batch", packed ? 1 : a.batch, t.stride_batch},
                                      Dimension{name, ".stride_row", rows, t.stride_row},
                                      Dimension{name, ".stride_head", heads, t.stride_head}};
  for (const Dimension& d : dimensions)
    if (d.size > 1 && d.stride % 8 != 0)
      return invalid(is(d.stride_name(), d.stride) +
                     "it must be a multiple of 8 elements, because rows are read 16 bytes at a time");
  if (Check failure = check_reach(name, dimensions)) return failure;
  if (role == Role::output) return check_no_overlap(name, dimensions, a.head_dim);
  // Kernels address the rows of a head in 32 bits.
  const std::int64_t furthest_row = std::min(longest, rows) - 1;
  std::int64_t offset = 0;
  if (furthest_row > 0 &&
      (__builtin_mul_overflow(furthest_row, t.stride_row, &offset) || offset > kLongestRowOffset - a.head_dim))
    return unsupported(std::string(name) + " is too long to address: " + std::to_string(furthest_row) + " rows x " +
                       name + ".stride_row " + std::to_string(t.stride_row) + " + head_dim " +
                       std::to_string(a.head_dim) +
                       " is more than 2147483647 elements within a head; use a smaller row stride, such as [batch, "
                       "heads, seqlen, head_dim] in memory, or split the sequence");
  return {};
}

std::uintptr_t element_bytes(std::int32_t data_type) {
  return data_type == FLASHDMA_BWD_FP32 ? 4 : 2;
}

enum class Columns { neighbours, anywhere };

/// Mask, bias or dBias.
Check check_pair_tensor(const char* name, const flashdma_bwd_pair_tensor& t, Role role, std::uintptr_t alignment,
                        Columns columns = Columns::neighbours) {
  if (t.batch == 0 || t.heads == 0 || t.rows == 0 || t.columns == 0) return {};
  if (Check failure = check_address(name, ".data", t.data, alignment)) return failure;
  if (columns == Columns::neighbours && t.columns > 1 && t.stride_column != 1)
    return invalid(is(std::string(name) + ".stride_column", t.stride_column) +
                   "it must be 1, for neighbouring keys are read together; one value for all keys is " + name +
                   ".columns 1");
  std::array<Dimension, 4> dimensions{Dimension{name, ".stride_batch", t.batch, t.stride_batch},
                                      Dimension{name, ".stride_head", t.heads, t.stride_head},
                                      Dimension{name, ".stride_row", t.rows, t.stride_row},
                                      Dimension{name, ".stride_column", t.columns, t.stride_column}};
  if (Check failure = check_reach(name, dimensions)) return failure;
  return role == Role::output ? check_no_overlap(name, dimensions, 1) : Check();
}

Check check_lse(const flashdma_bwd_arguments& a) {
  const bool packed = a.cu_seqlens_q != nullptr;
  const std::int64_t rows = packed ? a.total_q : a.seqlen_q;
  if (rows == 0 || a.heads == 0 || a.batch == 0) return {};
  if (Check failure = check_address("lse", "", a.lse, 4)) return failure;
  return check_reach("lse", std::array{Dimension{"lse", "_stride_batch", packed ? 1 : a.batch, a.lse_stride_batch},
                                       Dimension{"lse", "_stride_head", a.heads, a.lse_stride_head},
                                       Dimension{"lse", "_stride_row", rows, a.lse_stride_row}});
}

Check check_offsets(const char* name, const std::int32_t* offsets, std::int64_t batch, std::int64_t longest,
                    const char* longest_name, std::int64_t total, const char* total_name) {
  const auto at = [name](std::int64_t i) { return std::string(name) + '[' + std::to_string(i) + ']'; };
  if (offsets[0] != 0) return invalid(is(at(0), offsets[0]) + "the first offset must be 0");
  for (std::int64_t i = 0; i < batch; ++i) {
    const std::int64_t length = std::int64_t{offsets[i + 1]} - offsets[i];
    if (length < 0) return invalid(is(at(i + 1), offsets[i + 1]) + "offsets must not descend");
    if (length > longest)
      return invalid(is(at(i + 1), offsets[i + 1]) + "sequence " + std::to_string(i) + " has " +
                     std::to_string(length) + " rows, more than " + longest_name + ", " + std::to_string(longest));
  }
  if (offsets[batch] > total)
    return invalid(is(at(batch), offsets[batch]) + "the last offset must not exceed " + total_name + ", " +
                   std::to_string(total));
  return {};
}

/// Of a mask of intervals: whether a begin is an end, too. What one stride for both would mean is said by no array.
Check check_ends_apart(const flashdma_bwd_pair_tensor& mask) {
  const bool shared = mask.stride_row == 0 || (mask.columns > 1 && mask.stride_column == mask.stride_row);
  if (!shared) return {};
  return invalid(
      is("mask.stride_row", mask.stride_row) +
      "begins and ends of the intervals of FLASHDMA_BWD_ENCODING_INTERVALS lie so far apart, and need memory "
      "of their own; mask.stride_column is " +
      std::to_string(mask.stride_column) +
      ". Of an array [batch, heads, seqlen_k, 2] stride_row is 1 and stride_column is 2");
}

/// Calls visit(name of the mask, its first element) for each mask of the batch x heads until one returns a failure.
template <class Visit>
Check for_each_mask(const flashdma_bwd_pair_tensor& mask, const Visit& visit) {
  for (std::int64_t batch = 0; batch < mask.batch; ++batch)
    for (std::int64_t head = 0; head < mask.heads; ++head) {
      const std::int64_t offset =
          (mask.batch > 1 ? batch * mask.stride_batch : 0) + (mask.heads > 1 ? head * mask.stride_head : 0);
      const auto at = [batch, head](std::int64_t i) {
        return "mask[" + std::to_string(batch) + "][" + std::to_string(head) + "][" + std::to_string(i) + ']';
      };
      if (Check failure = visit(at, static_cast<const std::int32_t*>(mask.data) + offset)) return failure;
    }
  return {};
}

Check check_listed_keys(const flashdma_bwd_arguments& a) {
  std::vector<std::int64_t> places(static_cast<std::size_t>(a.seqlen_k));
  return for_each_mask(a.mask, [&](const auto& at, const std::int32_t* list) -> Check {
    std::fill(places.begin(), places.end(), -1);
    for (std::int64_t i = 0; i < a.mask.columns; ++i) {
      const std::int32_t key = list[i];
      if (key == -1) continue;
      if (key < 0 || key >= a.seqlen_k)
        return invalid(is(at(i), key) + "it is neither a key, which is less than seqlen_k, " +
                       std::to_string(a.seqlen_k) + ", nor -1, which pads a list. A GPU would pass it over");
      std::int64_t& place = places[static_cast<std::size_t>(key)];
      if (place >= 0)
        return invalid(is(at(i), key) + at(place) +
                       " is the same key, which stands in a list once; pad it with -1. A GPU would count it once");
      place = i;
    }
    return {};
  });
}

Check check_intervals(const flashdma_bwd_arguments& a) {
  const std::int64_t key_stride = a.mask.columns > 1 ? a.mask.stride_column : 0;
  return for_each_mask(a.mask, [&](const auto& at, const std::int32_t* intervals) -> Check {
    for (std::int64_t key = 0; key < a.mask.columns; ++key) {
      const std::int32_t begin = intervals[key * key_stride];
      const std::int32_t end = intervals[key * key_stride + a.mask.stride_row];
      if (0 <= begin && begin <= end && end <= a.seqlen_q) continue;
      const std::string interval = at(key) + " is [" + std::to_string(begin) + ", " + std::to_string(end) + "): ";
      if (begin > end)
        return invalid(interval +
                       "it ends before it begins; one without queries is [0, 0). A GPU would take it for empty");
      return invalid(interval + "it reaches out of the queries, 0 ... seqlen_q, " + std::to_string(a.seqlen_q) +
                     "; cut it to them, as a GPU would");
    }
    return {};
  });
}

}  // namespace

Check check_mask_memory(const flashdma_bwd_arguments& a) {
  flashdma_bwd_pair_tensor mask = a.mask;
  switch (mask.encoding) {
    case FLASHDMA_BWD_ENCODING_BITS:
      mask.columns = (mask.columns + 7) / 8;  // bytes, which have no other order
      mask.stride_column = 1;
      break;
    case FLASHDMA_BWD_ENCODING_KEY_LIST:
      return check_pair_tensor("mask", mask, Role::input, 4);
    case FLASHDMA_BWD_ENCODING_INTERVALS:
      if (Check failure = check_pair_tensor("mask", mask, Role::input, 4, Columns::anywhere)) return failure;
      return check_ends_apart(mask);
    default:
      break;
  }
  return check_pair_tensor("mask", mask, Role::input, 1);
}

Check check_memory(const flashdma_bwd_arguments& a) {
  struct Entry {
    const char* name;
    const flashdma_bwd_tensor& tensor;
    Role role;
    bool of_queries;
  };
  for (const auto& [name, tensor, role, of_queries] :
       {Entry{"q", a.q, Role::input, true}, Entry{"k", a.k, Role::input, false}, Entry{"v", a.v, Role::input, false},
        Entry{"out", a.out, Role::input, true}, Entry{"d_out", a.d_out, Role::input, true},
        Entry{"d_q", a.d_q, Role::output, true}, Entry{"d_k", a.d_k, Role::output, false},
        Entry{"d_v", a.d_v, Role::output, false}})
    if (Check failure = check_tensor(name, tensor, role, a, of_queries)) return failure;
  if (Check failure = check_lse(a)) return failure;
  if (a.cu_seqlens_q != nullptr) {
    if (Check failure = check_address("cu_seqlens_q", "", a.cu_seqlens_q, 4)) return failure;
    if (Check failure = check_address("cu_seqlens_k", "", a.cu_seqlens_k, 4)) return failure;
  }
  // With a plan nobody reads the mask.
  if (a.mask.data != nullptr && a.plan == nullptr)
    if (Check failure = check_mask_memory(a)) return failure;
  if (a.bias.data != nullptr)
    if (Check failure = check_pair_tensor("bias", a.bias, Role::input, element_bytes(a.bias.data_type))) return failure;
  if (a.d_bias.data != nullptr)
    if (Check failure = check_pair_tensor("d_bias", a.d_bias, Role::output, element_bytes(a.d_bias.data_type)))
      return failure;
  return {};
}

Check check_host_mask(const flashdma_bwd_arguments& a) {
  if (a.mask.data == nullptr) return {};
  if (a.mask.encoding == FLASHDMA_BWD_ENCODING_KEY_LIST) return check_listed_keys(a);
  return a.mask.encoding == FLASHDMA_BWD_ENCODING_INTERVALS ? check_intervals(a) : Check();
}

Check check_host_offsets(const flashdma_bwd_arguments& a) {
  if (a.cu_seqlens_q == nullptr) return {};
  if (Check failure =
          check_offsets("cu_seqlens_q", a.cu_seqlens_q, a.batch, a.seqlen_q, "seqlen_q", a.total_q, "total_q"))
    return failure;
  return check_offsets("cu_seqlens_k", a.cu_seqlens_k, a.batch, a.seqlen_k, "seqlen_k", a.total_k, "total_k");
}

}  // namespace flashdma_bwd
