// Queries of the current GPU, kept without a lock: a device's traits are one 64-bit word.
#include "device_traits.hpp"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

namespace flashdma_bwd {
namespace {

/// GPUs beyond these are asked every time.
constexpr int kKeptDevices = 64;
std::array<std::atomic<std::uint64_t>, kKeptDevices> kept_traits{};  // 0: not asked yet

std::uint64_t packed(const DeviceTraits& traits) {
  return static_cast<std::uint64_t>(traits.compute_capability) << 48 |
         static_cast<std::uint64_t>(traits.sm_count) << 32 | static_cast<std::uint64_t>(traits.shared_memory_per_block);
}
DeviceTraits unpacked(std::uint64_t word) {
  return {static_cast<int>(word >> 48), static_cast<int>(word >> 32 & 0xffffu), static_cast<int>(word & 0xffffffffu)};
}

Check cuda_failure(const char* call, cudaError_t error) {
  cudaGetLastError();  // the error is reported here, the next call of the program must not find it
  const std::string text = std::string(call) + " failed: " + cudaGetErrorString(error);
  if (error == cudaErrorNoDevice || error == cudaErrorInsufficientDriver)
    return Failure{FLASHDMA_BWD_UNSUPPORTED_ARCHITECTURE,
                   "no CUDA device: " + text +
                       ". Check nvidia-smi, the driver and CUDA_VISIBLE_DEVICES; without a GPU, "
                       "flashdma_bwd_backward_reference computes on the CPU"};
  return Failure{FLASHDMA_BWD_CUDA_ERROR, text};
}

}  // namespace

Check current_device_traits(DeviceTraits& traits) {
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess)
    return cuda_failure("cudaGetDevice", error);
  std::atomic<std::uint64_t>* kept = device < kKeptDevices ? &kept_traits[static_cast<std::size_t>(device)] : nullptr;
  if (kept != nullptr)
    if (const std::uint64_t word = kept->load(std::memory_order_relaxed); word != 0) {
      traits = unpacked(word);
      return {};
    }
  int major = 0;
  int minor = 0;
  struct Query {
    const char* call;
    cudaDeviceAttr attribute;
    int* value;
  };
  for (const auto& [call, attribute, value] :
       {Query{"cudaDeviceGetAttribute(ComputeCapabilityMajor)", cudaDevAttrComputeCapabilityMajor, &major},
        Query{"cudaDeviceGetAttribute(ComputeCapabilityMinor)", cudaDevAttrComputeCapabilityMinor, &minor},
        Query{"cudaDeviceGetAttribute(MultiProcessorCount)", cudaDevAttrMultiProcessorCount, &traits.sm_count},
        Query{"cudaDeviceGetAttribute(MaxSharedMemoryPerBlockOptin)", cudaDevAttrMaxSharedMemoryPerBlockOptin,
              &traits.shared_memory_per_block}})
    if (const cudaError_t error = cudaDeviceGetAttribute(value, attribute, device); error != cudaSuccess)
      return cuda_failure(call, error);
  traits.compute_capability = 10 * major + minor;
  if (kept != nullptr) kept->store(packed(traits), std::memory_order_relaxed);
  return {};
}

Check device_traits(const flashdma_bwd_device* device, DeviceTraits& traits) {
  if (device == nullptr) return current_device_traits(traits);
  struct Field {
    const char* name;
    std::int32_t value;
  };
  for (const auto& [name, value] :
       {Field{"compute_capability", device->compute_capability}, Field{"sm_count", device->sm_count},
        Field{"shared_memory_per_block", device->shared_memory_per_block}})
    if (value <= 0)
      return invalid(std::string("device.") + name + " is " + std::to_string(value) +
                     ": it must be positive; an H100 has compute capability 90, 132 multiprocessors and 232448 bytes");
  traits = {device->compute_capability, device->sm_count, device->shared_memory_per_block};
  return {};
}

}  // namespace flashdma_bwd
