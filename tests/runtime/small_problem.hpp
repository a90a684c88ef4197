// A small problem on the host that is accepted as it is, and checks that a change to it is refused or accepted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <flashdma_bwd/flashdma_bwd.hpp>
#include <functional>
#include <initializer_list>
#include <string>
#include <vector>

#include "support/catch.hpp"

namespace flashdma_bwd::testing {

inline constexpr std::int64_t kBatch = 2, kHeads = 4, kHeadsKv = 2, kQueries = 5, kKeys = 7, kHeadDim = 8;

/// Its type and sizes, without tensors.
inline Arguments small_shape() {
  Arguments a;
  a.data_type = FLASHDMA_BWD_BF16;
  a.batch = kBatch;
  a.heads = kHeads;
  a.heads_kv = kHeadsKv;
  a.head_dim = kHeadDim;
  a.seqlen_q = kQueries;
  a.seqlen_k = kKeys;
  return a;
}

/// Zeroed memory for a small problem with mask, bias and dBias, in which every pointer and stride is good.
class SmallProblem {
 public:
  SmallProblem() {
    Arguments& a = arguments;
    for (Tensor* t : {&a.q, &a.out, &a.d_out, &a.d_q}) *t = rows(kQueries, kHeads);
    for (Tensor* t : {&a.k, &a.v, &a.d_k, &a.d_v}) *t = rows(kKeys, kHeadsKv);
    a.lse = static_cast<const float*>(take());
    a.lse_stride_batch = kHeads * kQueries;
    a.lse_stride_head = kQueries;
    a.lse_stride_row = 1;
    a.mask = pairs(0, kBatch, kHeads, kQueries, kKeys);
    a.bias = pairs(FLASHDMA_BWD_BF16, kBatch, kHeads, kQueries, kKeys);
    a.d_bias = pairs(FLASHDMA_BWD_BF16, kBatch, kHeads, kQueries, kKeys);
  }
  ~SmallProblem() {
    for (void* block : blocks_) std::free(block);
  }
  SmallProblem(const SmallProblem&) = delete;
  SmallProblem& operator=(const SmallProblem&) = delete;

  PairTensor pairs(std::int32_t type, std::int64_t batch, std::int64_t heads, std::int64_t row_count,
                   std::int64_t columns) {
    return {take(),  type, 0, batch, heads, row_count, columns, heads * row_count * columns, row_count * columns,
            columns, 1};
  }
  const std::int32_t* offsets(std::initializer_list<std::int32_t> values) {
    auto* memory = static_cast<std::int32_t*>(take());
    std::copy(values.begin(), values.end(), memory);
    return memory;
  }
  /// Packed sequences of 3 and 2 queries, 7 and 0 keys.
  void make_packed() {
    arguments.cu_seqlens_q = offsets({0, 3, 5});
    arguments.cu_seqlens_k = offsets({0, 7, 7});
    arguments.total_q = 5;
    arguments.total_k = 7;
  }

  Arguments arguments = small_shape();

 private:
  void* take() {
    constexpr std::size_t kBytes = 16384;
    blocks_.push_back(std::aligned_alloc(256, kBytes));
    std::fill_n(static_cast<char*>(blocks_.back()), kBytes, '\0');
    return blocks_.back();
  }
  Tensor rows(std::int64_t count, std::int64_t heads) {
    return {take(), count * heads * kHeadDim, heads * kHeadDim, kHeadDim};
  }
  std::vector<void*> blocks_;
};

inline constexpr Device kH100{90, 132, 232448};

/// `change` makes the CPU backend refuse the small problem with `code` and a message that has all of `parts`.
inline void check_refused(const std::function<void(SmallProblem&)>& change, Code code,
                          const std::vector<std::string>& parts) {
  SmallProblem problem;
  change(problem);
  const Status status = backward_reference(problem.arguments, 1);
  INFO(parts.front() << ": " << status.message());
  CHECK(status.code() == code);
  for (const std::string& part : parts) CHECK(status.message().find(part) != std::string::npos);
}
inline void check_accepted(const std::function<void(SmallProblem&)>& change) {
  SmallProblem problem;
  change(problem);
  const Status status = backward_reference(problem.arguments, 1);
  INFO(status.message());
  CHECK(status.ok());
}

/// An H100 would run the problem, if this build has kernels for one.
inline void check_selected(const Arguments& a) {
  Selection selection{};
  const Status status = select(a, selection, &kH100);
  INFO(status.message());
  CHECK((status.ok() || status.code() == FLASHDMA_BWD_UNSUPPORTED_ARCHITECTURE ||
         status.code() == FLASHDMA_BWD_NOT_COMPILED));
}

inline constexpr Code kInvalid = FLASHDMA_BWD_INVALID_ARGUMENT;
inline constexpr Code kUnsupported = FLASHDMA_BWD_UNSUPPORTED;

}  // namespace flashdma_bwd::testing
