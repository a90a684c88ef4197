// A problem in device memory. See device_problem.hpp.
#include "device_problem.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "active_pairs.hpp"
#include "fill.hpp"
#include "mask_encodings.hpp"
#include "mask_shapes.hpp"
#include "plausible_lse.hpp"

namespace flashdma_bwd::bench {
namespace {

constexpr std::uint64_t kSeed = 2024;
constexpr std::size_t kMostCopies = 16;

/// As flashdma_bwd_arguments has it. `active_fraction`: of all pairs.
std::int32_t mask_density_of(const Problem& problem, double active_fraction) {
  const double pairs = static_cast<double>(problem.seqlen_q) * static_cast<double>(problem.seqlen_k);
  const double visible = visible_pairs(problem);
  const double density = visible == 0 ? 0 : active_fraction * pairs / visible;
  return std::clamp(static_cast<std::int32_t>(std::lround(1000 * density)), 1, 1000);
}

}  // namespace

std::string layout_word(std::int32_t layout) {
  switch (layout) {
    case FLASHDMA_BWD_LAYOUT_NATURAL:
      return "natural";
    case FLASHDMA_BWD_LAYOUT_COMPACTED:
      return "compacted";
    case FLASHDMA_BWD_LAYOUT_REORDERED:
      return "reordered";
    default:
      return {};
  }
}

cudaError_t DeviceMemory::allocate(std::size_t bytes) {
  void* memory = nullptr;
  const cudaError_t error = cudaMalloc(&memory, std::max<std::size_t>(bytes, 1));
  memory_.reset(memory);
  return error;
}

DeviceProblem::DeviceProblem(const Problem& problem, const DeviceProblemOptions& options) {
  if (!build(problem, options) && message_.empty()) message_ = "the problem could not be built";
}

bool DeviceProblem::check(cudaError_t error, const char* what) {
  if (error == cudaSuccess) return true;
  message_ = std::string(what) + ": " + cudaGetErrorString(error);
  return false;
}

bool DeviceProblem::check(const Status& status, const char* what) {
  if (status) return true;
  message_ = std::string(what) + ": " + status.message();
  return false;
}

void* DeviceProblem::allocate(std::size_t bytes) {
  check(memory_.emplace_back().allocate(bytes), "allocating device memory");
  return memory_.back().data();
}

void* DeviceProblem::upload(const void* data, std::size_t bytes) {
  void* memory = allocate(bytes);
  if (memory != nullptr) check(cudaMemcpy(memory, data, bytes, cudaMemcpyHostToDevice), "copying to the device");
  return memory;
}

Tensor DeviceProblem::tensor(std::int64_t seqlen, std::int64_t heads, float deviation, std::uint64_t seed) {
  const auto count = static_cast<std::size_t>(shared_.batch * seqlen * heads * shared_.head_dim);
  Tensor tensor;
  tensor.stride_head = shared_.head_dim;
  tensor.stride_row = heads * shared_.head_dim;
  tensor.stride_batch = seqlen * tensor.stride_row;
  tensor.data = allocate(count * 2);
  const bool bf16 = shared_.data_type == FLASHDMA_BWD_BF16;
  if (tensor.data != nullptr && deviation > 0)
    check(fill_normal(tensor.data, count, bf16, deviation, seed), "filling a tensor");
  return tensor;
}

PairTensor DeviceProblem::pair_tensor(void* data, std::int64_t heads, std::int64_t rows, std::int32_t data_type) const {
  PairTensor tensor{};
  tensor.data = data;
  tensor.data_type = data_type;
  tensor.batch = shared_.batch;
  tensor.heads = heads;
  tensor.rows = rows;
  tensor.columns = shared_.seqlen_k;
  tensor.stride_column = 1;
  tensor.stride_row = tensor.columns;
  tensor.stride_head = rows * tensor.stride_row;
  tensor.stride_batch = tensor.heads * tensor.stride_head;
  return tensor;
}

bool DeviceProblem::build(const Problem& problem, const DeviceProblemOptions& options) {
  kernel_ = options.kernel;
  shared_.data_type = problem.bf16 ? FLASHDMA_BWD_BF16 : FLASHDMA_BWD_FP16;
  shared_.batch = problem.batch;
  shared_.heads = problem.heads;
  shared_.heads_kv = problem.heads_kv;
  shared_.head_dim = static_cast<std::int32_t>(problem.head_dim);
  shared_.seqlen_q = problem.seqlen_q;
  shared_.seqlen_k = problem.seqlen_k;
  shared_.softcap = static_cast<float>(problem.softcap);
  shared_.causal = problem.causal;
  if (problem.window > 0) shared_.window_left = problem.window - 1;
  shared_.mask_layout = options.mask_layout;
  shared_.mask_density = options.mask_density;
  shared_.flags = options.flags;
  if (problem.deterministic) shared_.flags |= FLASHDMA_BWD_FLAG_DETERMINISTIC;
  if (!kernel_.empty()) shared_.kernel = kernel_.c_str();
  if (!upload_shared(problem, options) || (problem.packed && !pack())) return false;

  // As many copies as together exceed the L2 cache twice.
  int l2_bytes = 0;
  if (!check(cudaDeviceGetAttribute(&l2_bytes, cudaDevAttrL2CacheSize, 0), "asking for the size of the L2 cache"))
    return false;
  const std::int64_t q_elements = problem.batch * problem.seqlen_q * problem.heads * problem.head_dim;
  const std::int64_t k_elements = problem.batch * problem.seqlen_k * problem.heads_kv * problem.head_dim;
  const auto copy_bytes = static_cast<std::size_t>(2 * (4 * q_elements + 4 * k_elements));
  const std::size_t wanted = 2 * static_cast<std::size_t>(l2_bytes) / copy_bytes + 1;
  for (std::size_t i = 0; i < std::min(wanted, kMostCopies); ++i)
    if (!make_copy(kSeed + 16 * i)) return false;

  may_be_scheduled_ =
      options.schedule && shared_.cu_seqlens_q == nullptr && (shared_.flags & FLASHDMA_BWD_FLAG_DETERMINISTIC) == 0;
  if (options.reuse_plan && problem.mask != MaskShape::none && !(make_plan() && make_schedule())) return false;
  return fit_workspace() && check(cudaDeviceSynchronize(), "filling the inputs");
}

bool DeviceProblem::fit_workspace() {
  std::size_t bytes = 0;
  if (!check(workspace_size(copies_.front(), bytes), "workspace_size")) return false;
  if (bytes > workspace_bytes_ || workspace_.data() == nullptr) {
    workspace_bytes_ = bytes;
    if (!check(workspace_.allocate(bytes), "allocating the workspace")) return false;
  }
  return check(prepare(copies_.front()), "prepare");
}

bool DeviceProblem::use_kernel(const std::string& kernel) {
  message_.clear();
  kernel_ = kernel;
  for (Arguments& copy : copies_) copy.kernel = kernel_.c_str();
  plan_arguments_.kernel = kernel_.c_str();
  for (Arguments& copy : copies_) copy.schedule = nullptr;  // which is of one kernel
  return fit_workspace();
}

bool DeviceProblem::upload_shared(const Problem& problem, const DeviceProblemOptions& options) {
  const std::vector<float> scores = random_scores(problem, kSeed);
  const HostMask mask = make_mask(problem, scores, kSeed);
  active_fraction_ = mask.active_fraction;
  if (!mask.keep.empty()) {
    const EncodedMask encoded = encode(problem, mask);
    shared_.mask = encoded.tensor;
    shared_.mask.data = upload(encoded.bytes.data(), encoded.bytes.size());
    shared_.mask_block_q = encoded.block_q;
    shared_.mask_block_k = encoded.block_k;
    if (shared_.mask_density == 0) shared_.mask_density = mask_density_of(problem, active_fraction_);
  }

  const std::vector<float> lse = plausible_lse(problem);
  shared_.lse = static_cast<const float*>(upload(lse.data(), lse.size() * sizeof(float)));
  shared_.lse_stride_row = 1;
  shared_.lse_stride_head = problem.seqlen_q;
  shared_.lse_stride_batch = problem.heads * problem.seqlen_q;

  if (problem.bias != BiasShape::none) make_bias(problem, options);
  return ok();
}

// The same memory, as sequences behind each other. The statistics of a head lie together then; they are alike.
bool DeviceProblem::pack() {
  const auto upload_offsets = [&](std::int64_t seqlen) {
    std::vector<std::int32_t> offsets;
    for (std::int64_t i = 0; i <= shared_.batch; ++i) offsets.push_back(static_cast<std::int32_t>(i * seqlen));
    return static_cast<const std::int32_t*>(upload(offsets.data(), offsets.size() * sizeof(std::int32_t)));
  };
  shared_.cu_seqlens_q = upload_offsets(shared_.seqlen_q);
  shared_.cu_seqlens_k = upload_offsets(shared_.seqlen_k);
  shared_.total_q = shared_.batch * shared_.seqlen_q;
  shared_.total_k = shared_.batch * shared_.seqlen_k;
  shared_.lse_stride_head = shared_.total_q;
  return ok();
}

void DeviceProblem::make_bias(const Problem& problem, const DeviceProblemOptions& options) {
  const std::int64_t rows = problem.bias == BiasShape::key ? 1 : problem.seqlen_q;
  const std::int64_t heads = options.bias_of_all_heads ? problem.heads : problem.heads_kv;
  const auto count = static_cast<std::size_t>(problem.batch * heads * rows * problem.seqlen_k);
  const std::int32_t type = shared_.data_type;
  const std::size_t shift = options.unaligned_bias ? 8 : 0;
  auto* memory = static_cast<std::byte*>(allocate(shift + 2 * count));
  shared_.bias = pair_tensor(memory == nullptr ? nullptr : memory + shift, heads, rows, type);
  shared_.d_bias = pair_tensor(allocate(2 * count), heads, rows, type);
  if (shared_.bias.data != nullptr)
    check(fill_normal(shared_.bias.data, count, problem.bf16, 0.1f, kSeed + 7), "filling the bias");
}

bool DeviceProblem::make_copy(std::uint64_t seed) {
  Arguments& copy = copies_.emplace_back(shared_);
  copy.q = tensor(copy.seqlen_q, copy.heads, 1.0f, seed);
  copy.k = tensor(copy.seqlen_k, copy.heads_kv, 1.0f, seed + 1);
  copy.v = tensor(copy.seqlen_k, copy.heads_kv, 1.0f, seed + 2);
  copy.out = tensor(copy.seqlen_q, copy.heads, 0.1f, seed + 3);
  copy.d_out = tensor(copy.seqlen_q, copy.heads, 1.0f, seed + 4);
  copy.d_q = tensor(copy.seqlen_q, copy.heads, 0.0f, 0);
  copy.d_k = tensor(copy.seqlen_k, copy.heads_kv, 0.0f, 0);
  copy.d_v = tensor(copy.seqlen_k, copy.heads_kv, 0.0f, 0);
  return ok();
}

bool DeviceProblem::make_plan() {
  plan_arguments_ = copies_.front();
  if (!check(plan_size(plan_arguments_, plan_bytes_), "plan_size")) return false;
  plan_memory_ = allocate(plan_bytes_);
  if (plan_memory_ == nullptr || !check(build_plan(nullptr), "plan_build")) return false;
  for (Arguments& copy : copies_) copy.plan = &plan_;
  return look_at_plan();
}

Status DeviceProblem::build_plan(cudaStream_t stream) {
  return plan_build(plan_arguments_, plan_memory_, plan_bytes_, stream, plan_);
}

bool DeviceProblem::make_schedule() {
  for (Arguments& copy : copies_) copy.schedule = nullptr;
  if (!may_be_scheduled_) return true;
  schedule_arguments_ = copies_.front();
  if (!check(schedule_size(schedule_arguments_, schedule_bytes_), "schedule_size")) return false;
  schedule_memory_ = DeviceMemory();
  if (!check(schedule_memory_.allocate(schedule_bytes_), "allocating the schedule")) return false;
  if (!check(build_schedule(nullptr), "schedule_build")) return false;
  // Backwards run on streams that do not wait for this one.
  if (!check(cudaDeviceSynchronize(), "building the schedule")) return false;
  for (Arguments& copy : copies_) copy.schedule = &schedule_;
  return true;
}

Status DeviceProblem::build_schedule(cudaStream_t stream) {
  return schedule_build(schedule_arguments_, schedule_memory_.data(), schedule_bytes_, stream, schedule_);
}

bool DeviceProblem::look_at_plan() {
  plan_found_ = {layout_word(plan_.layout), plan_.batch * plan_.heads, std::nullopt};
  if (plan_.layout != FLASHDMA_BWD_LAYOUT_REORDERED) return true;
  std::vector<flashdma_bwd_key_order> orders(static_cast<std::size_t>(plan_found_.masks));
  if (!check(cudaMemcpy(orders.data(), plan_memory_, orders.size() * sizeof(orders.front()), cudaMemcpyDeviceToHost),
             "reading the plan"))
    return false;
  return check(plan_summarize(plan_, orders.data(), plan_found_.tiles.emplace()), "plan_summarize");
}

Status DeviceProblem::backward(cudaStream_t stream) {
  const Arguments& copy = copies_[turn_];
  turn_ = (turn_ + 1) % copies_.size();
  return flashdma_bwd::backward(copy, workspace_.data(), workspace_bytes_, stream);
}

Status DeviceProblem::backward_again(cudaStream_t stream) {
  return flashdma_bwd::backward(copies_.front(), workspace_.data(), workspace_bytes_, stream);
}

}  // namespace flashdma_bwd::bench
