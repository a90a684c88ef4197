// The floor of a problem's time. See floor.hpp.
#include "floor.hpp"

#include <cmath>

#include "active_pairs.hpp"

namespace flashdma_bwd::bench {
namespace {

constexpr double kElementBytes = 2;   // fp16 and bf16
constexpr double kNumberBytes = 4;    // float32, int32
constexpr double kIntervalBytes = 8;  // begin and end of a key's queries
constexpr double kBitsPerByte = 8;

struct Sizes {
  double batch, heads, heads_kv, head_dim, seqlen_q, seqlen_k;
};

template <class AnyProblem>
Sizes sizes_of(const AnyProblem& problem) {
  return {static_cast<double>(problem.batch),    static_cast<double>(problem.heads),
          static_cast<double>(problem.heads_kv), static_cast<double>(problem.head_dim),
          static_cast<double>(problem.seqlen_q), static_cast<double>(problem.seqlen_k)};
}

double tensor_bytes(const Sizes& n) {
  const double of_queries = n.batch * n.seqlen_q * n.heads * n.head_dim;  // Q, O, dO, dQ
  const double of_keys = n.batch * n.seqlen_k * n.heads_kv * n.head_dim;  // K, V, dK, dV
  return kElementBytes * (4 * of_queries + 4 * of_keys);
}

double lse_bytes(const Sizes& n) {
  return kNumberBytes * n.batch * n.heads * n.seqlen_q;
}

// [b, h_kv, 1 or sq, sk]: values that some pair uses are read, all of the gradient is written.
double bias_bytes(const Problem& problem, const Sizes& n, double active_fraction) {
  const double keys = n.batch * n.heads_kv * n.seqlen_k;
  if (problem.bias == BiasShape::key) return kElementBytes * 2 * keys;
  if (problem.bias == BiasShape::tile) return kElementBytes * keys * n.seqlen_q * (active_fraction + 1);
  return 0;
}

// What is read of a mask [b, h_kv, 1 or sq, sk], where pairs that causality hides are not.
double mask_bytes(const Problem& problem, const Sizes& n) {
  const double masks = n.batch * n.heads_kv;
  const bool one_row = problem.mask == MaskShape::keys;
  const double pairs = one_row ? n.seqlen_k : visible_pairs(problem);
  switch (problem.encoding) {
    case MaskEncoding::bytes:
      return masks * pairs;
    case MaskEncoding::bits:
      return masks * pairs / kBitsPerByte;
    case MaskEncoding::keys:
      return masks * kNumberBytes * problem.keep_probability * n.seqlen_k;
    case MaskEncoding::intervals:
      return masks * kIntervalBytes * n.seqlen_k;
    case MaskEncoding::blocks:
      return masks * pairs / (static_cast<double>(kMaskBlock) * kMaskBlock);
  }
  return 0;
}

// A list of keys where all queries have the same; else at least a bit for each active pair of each mask.
double plan_bytes(const Problem& problem, const Sizes& n, double active_fraction) {
  const double keys = n.batch * n.heads_kv * n.seqlen_k;
  if (problem.mask == MaskShape::keys) return kNumberBytes * problem.keep_probability * keys;
  return active_fraction * keys * n.seqlen_q / kBitsPerByte;
}

}  // namespace

Work work_of(const Problem& problem, double active_fraction, PlanUse plan) {
  const Sizes n = sizes_of(problem);
  Work work;
  work.flops = 10 * active_fraction * n.batch * n.heads * n.seqlen_q * n.seqlen_k * n.head_dim;
  work.bytes.tensors = tensor_bytes(n);
  work.bytes.lse = lse_bytes(n);
  work.bytes.bias = bias_bytes(problem, n, active_fraction);
  if (problem.mask == MaskShape::none) return work;
  if (plan == PlanUse::built)
    work.bytes.mask = mask_bytes(problem, n);
  else
    work.bytes.plan = plan_bytes(problem, n, active_fraction);
  return work;
}

Work work_of(const flashdma_bwd::Problem& problem) {
  const Sizes n = sizes_of(problem);
  const double density = problem.masked ? problem.mask_density / 1000.0 : 1.0;
  const double pairs = density * visible_pairs(problem.seqlen_q, problem.seqlen_k, problem.causal, problem.window);
  Work work;
  work.flops = 10 * n.batch * n.heads * pairs * n.head_dim;
  work.bytes.tensors = tensor_bytes(n);
  work.bytes.lse = lse_bytes(n);
  if (problem.bias == BiasKind::key_vector) work.bytes.bias = kElementBytes * n.seqlen_k;
  if (problem.bias == BiasKind::tile) work.bytes.bias = kElementBytes * pairs;
  return work;
}

Floor floor_of(const Work& work, const Ceilings& ceilings) {
  Floor floor;
  if (ceilings.dense_tflops > 0) floor.compute_ms = work.flops / (ceilings.dense_tflops * 1e9);
  if (ceilings.copy_gb_per_s > 0) floor.memory_ms = work.bytes.total() / (ceilings.copy_gb_per_s * 1e6);
  floor.ms = std::fmax(floor.compute_ms, floor.memory_ms);
  if (floor.ms > 0) floor.bound = floor.compute_ms >= floor.memory_ms ? Bound::compute : Bound::memory;
  return floor;
}

const char* bound_word(Bound bound) {
  switch (bound) {
    case Bound::compute:
      return "compute";
    case Bound::memory:
      return "memory";
    case Bound::unknown:
      break;
  }
  return "unknown";
}

}  // namespace flashdma_bwd::bench
