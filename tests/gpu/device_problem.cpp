// Uploads, poison and canaries.
#include "gpu/device_problem.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace flashdma_bwd::testing {
namespace {

constexpr std::size_t kCanaryBytes = 4096;  // after the workspace

/// The pointer of `arguments` that points into `buffer`, moved to `device`. Returns whether there was one.
template <class Pointer>
bool relocate(Pointer& pointer, const Buffer& buffer, std::byte* device) {
  const auto* at = reinterpret_cast<const std::byte*>(pointer);
  const std::byte* begin = buffer.bytes.data();
  if (at == nullptr || at < begin || at >= begin + buffer.bytes.size()) return false;
  pointer = reinterpret_cast<Pointer>(device + (at - begin));
  return true;
}

/// Whether the canaries at a device address are all there.
bool has_canaries(const std::byte* device) {
  std::vector<std::byte> host(kCanaryBytes);
  require_cuda(cudaMemcpy(host.data(), device, kCanaryBytes, cudaMemcpyDeviceToHost), "download");
  return std::all_of(host.begin(), host.end(), [](std::byte b) { return b == kCanary; });
}

}  // namespace

void require_cuda(cudaError_t error, const char* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

DeviceMemory::DeviceMemory(std::size_t bytes) : bytes_(bytes) {
  void* memory = nullptr;
  require_cuda(cudaMalloc(&memory, std::max<std::size_t>(bytes, 1)), "cudaMalloc");
  data_ = static_cast<std::byte*>(memory);
}
DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}
DeviceMemory::~DeviceMemory() {
  cudaFree(data_);
}

DeviceStream::DeviceStream() {
  require_cuda(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
}
DeviceStream::~DeviceStream() {
  cudaStreamDestroy(stream_);
}

DeviceProblem::DeviceProblem(Problem& problem, Inputs inputs) : problem_(problem) {
  static_cast<flashdma_bwd_arguments&>(arguments_) = problem.arguments();
  Arguments& a = arguments_;
  const auto move_pointers = [&a](const Buffer& buffer, std::byte* device) {
    for (Tensor* t : {&a.q, &a.k, &a.v, &a.out, &a.d_out, &a.d_q, &a.d_k, &a.d_v})
      if (relocate(t->data, buffer, device)) return;
    for (PairTensor* t : {&a.mask, &a.bias, &a.d_bias})
      if (relocate(t->data, buffer, device)) return;
    if (relocate(a.lse, buffer, device) || relocate(a.cu_seqlens_q, buffer, device)) return;
    if (relocate(a.cu_seqlens_k, buffer, device)) return;
    throw std::logic_error("no argument points into buffer " + std::string(buffer.name));
  };
  for (const Buffer* buffer : problem.inputs()) {
    std::byte* data = inputs == Inputs::lonely ? lonely_inputs_.emplace_back(buffer->bytes.size()).data()
                                               : inputs_.emplace_back(buffer->bytes.size()).data();
    require_cuda(cudaMemcpy(data, buffer->bytes.data(), buffer->bytes.size(), cudaMemcpyHostToDevice),
                 "upload of an input");
    move_pointers(*buffer, data);
  }
  // The stream does not wait for the default stream, nor does the host for its copies.
  require_cuda(cudaDeviceSynchronize(), "upload of the inputs");
  problem.poison_outputs();
  for (const Buffer* buffer : problem.outputs()) {
    outputs_.emplace_back(buffer->bytes.size());
    poison_.push_back(buffer->bytes);
    move_pointers(*buffer, outputs_.back().data());
  }
  mask_ = a.mask;
}

Status DeviceProblem::prepare_buffers() {
  std::size_t bytes = 0;
  if (Status status = workspace_size(arguments_, bytes); !status) return status;
  if (workspace_.bytes() < bytes + kCanaryBytes) workspace_ = DeviceMemory(bytes + kCanaryBytes);
  workspace_bytes_ = bytes;
  const auto poison = static_cast<int>(kPoison);
  const auto canary = static_cast<int>(kCanary);
  require_cuda(cudaMemsetAsync(workspace_.data(), poison, bytes, stream()), "poisoning of the workspace");
  require_cuda(cudaMemsetAsync(workspace_.data() + bytes, canary, kCanaryBytes, stream()), "canaries of the workspace");
  for (std::size_t i = 0; i < outputs_.size(); ++i)
    require_cuda(
        cudaMemcpyAsync(outputs_[i].data(), poison_[i].data(), poison_[i].size(), cudaMemcpyHostToDevice, stream()),
        "poisoning of an output");
  require_cuda(cudaStreamSynchronize(stream()), "poisoning");
  return {};
}

Status DeviceProblem::enqueue() {
  return backward(arguments_, workspace_.data(), workspace_bytes_, stream());
}

std::string DeviceProblem::finish() {
  if (const cudaError_t error = cudaStreamSynchronize(stream()); error != cudaSuccess)
    throw std::runtime_error(std::string("the backward failed on the device: ") + cudaGetErrorString(error));
  const bool workspace_kept = has_canaries(workspace_.data() + workspace_bytes_);
  const bool schedule_kept = arguments_.schedule == nullptr || has_canaries(schedule_memory_.data() + schedule_.bytes);
  const std::vector<Buffer*> buffers = problem_.outputs();
  for (std::size_t i = 0; i < buffers.size(); ++i)
    require_cuda(
        cudaMemcpy(buffers[i]->bytes.data(), outputs_[i].data(), buffers[i]->bytes.size(), cudaMemcpyDeviceToHost),
        "download of an output");
  if (!workspace_kept) return "the workspace was written past its end";
  if (!schedule_kept) return "the schedule was written past its end";
  return problem_.damaged_canaries();
}

Status DeviceProblem::run(std::string& defect) {
  if (Status status = prepare_buffers(); !status) return status;
  if (Status status = enqueue(); !status) return status;
  defect = finish();
  return {};
}

Status DeviceProblem::use_prebuilt_plan() {
  std::size_t bytes = 0;
  if (Status status = plan_size(arguments_, bytes); !status) return status;
  plan_memory_ = DeviceMemory(bytes);
  require_cuda(cudaMemsetAsync(plan_memory_.data(), static_cast<int>(kPoison), bytes, stream()),
               "poisoning of the plan");
  if (Status status = plan_build(arguments_, plan_memory_.data(), bytes, stream(), plan_); !status) return status;
  arguments_.plan = &plan_;
  arguments_.mask = {};
  return {};
}

Status DeviceProblem::use_schedule() {
  std::size_t bytes = 0;
  if (Status status = schedule_size(arguments_, bytes); !status) return status;
  schedule_memory_ = DeviceMemory(bytes + kCanaryBytes);
  require_cuda(cudaMemsetAsync(schedule_memory_.data(), static_cast<int>(kPoison), bytes, stream()),
               "poisoning of the schedule");
  require_cuda(cudaMemsetAsync(schedule_memory_.data() + bytes, static_cast<int>(kCanary), kCanaryBytes, stream()),
               "canaries of the schedule");
  if (Status status = schedule_build(arguments_, schedule_memory_.data(), bytes, stream(), schedule_); !status)
    return status;
  arguments_.schedule = &schedule_;
  return {};
}

void DeviceProblem::use_mask() {
  arguments_.schedule = nullptr;
  arguments_.plan = nullptr;
  arguments_.mask = mask_;
}

}  // namespace flashdma_bwd::testing
