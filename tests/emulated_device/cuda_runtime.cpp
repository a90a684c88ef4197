// The CUDA runtime of the emulated device, as far as the library and its tests use it. Everything is done when the call
// returns, in whichever stream; there are no graphs. New memory is full of NaNs.
//
// FLASHDMA_BWD_EMULATED_MULTIPROCESSORS says how many there are (4).
#include <cuda_runtime.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <unordered_map>

#include "scheduler.hpp"
#include "tensor_map.hpp"

namespace flashdma_bwd::emulated {
namespace {

constexpr int kStaticSharedLimit = 48 * 1024;

thread_local cudaError_t last_error = cudaSuccess;

cudaError_t result(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

int multiprocessors() {
  const char* text = std::getenv("FLASHDMA_BWD_EMULATED_MULTIPROCESSORS");
  return text == nullptr ? 4 : std::atoi(text);
}

struct SharedLimits {
  std::mutex mutex;
  std::unordered_map<const void*, int> bytes;  ///< by kernel
};
SharedLimits& shared_limits() {
  static SharedLimits limits;
  return limits;
}

struct Event {
  std::chrono::steady_clock::time_point time;
};
Event& event_of(cudaEvent_t event) {
  return *reinterpret_cast<Event*>(event);
}

// --- The driver's functions that are found by name ---

CUresult encode_tiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t dimensions, void* data,
                      const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* box,
                      const cuuint32_t* element_strides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                      CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
  constexpr std::uint64_t kLongestStride = std::uint64_t{1} << 40;
  constexpr std::uint64_t kLargest = std::uint64_t{1} << 32;
  TensorMap m{};
  switch (type) {
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
      m.element_bytes = 2;
      break;
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT32:
      m.element_bytes = 4;
      break;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
      m.element_bytes = 8;
      break;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  switch (swizzle) {
    case CU_TENSOR_MAP_SWIZZLE_NONE:
      m.swizzle_bytes = 0;
      break;
    case CU_TENSOR_MAP_SWIZZLE_32B:
      m.swizzle_bytes = 32;
      break;
    case CU_TENSOR_MAP_SWIZZLE_64B:
      m.swizzle_bytes = 64;
      break;
    case CU_TENSOR_MAP_SWIZZLE_128B:
      m.swizzle_bytes = 128;
      break;
    default:
      return CUDA_ERROR_NOT_SUPPORTED;
  }
  if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE || fill != CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)
    return CUDA_ERROR_NOT_SUPPORTED;
  // One that no memory has, such as NULL less some rows, a driver may refuse.
  const auto address = reinterpret_cast<std::uintptr_t>(data);
  if (dimensions < 1 || dimensions > 5 || address % 16 != 0 || address < 4096 || address >> 48 != 0)
    return CUDA_ERROR_INVALID_VALUE;
  m.mark = kMapMark;
  m.dimensions = static_cast<std::uint8_t>(dimensions);
  m.data = static_cast<std::byte*>(data);
  for (cuuint32_t i = 0; i < dimensions; ++i) {
    if (sizes[i] == 0 || sizes[i] > kLargest || box[i] == 0 || box[i] > 256 || element_strides[i] != 1)
      return CUDA_ERROR_INVALID_VALUE;
    if (i > 0 && (strides[i - 1] % 16 != 0 || strides[i - 1] >= kLongestStride)) return CUDA_ERROR_INVALID_VALUE;
    m.sizes[i] = sizes[i];
    m.box[i] = box[i];
    if (i > 0) m.strides[i - 1] = strides[i - 1];
  }
  const cuuint32_t row_bytes = box[0] * m.element_bytes;
  if (row_bytes % 16 != 0 || (m.swizzle_bytes != 0 && row_bytes > m.swizzle_bytes)) return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(map, &m, sizeof m);
  return CUDA_SUCCESS;
}

// Virtual memory: addresses that nothing lies at fault when they are read.

CUresult granularity(std::size_t* bytes, const CUmemAllocationProp*, CUmemAllocationGranularity_flags) {
  *bytes = 4096;
  return CUDA_SUCCESS;
}
CUresult reserve(CUdeviceptr* address, std::size_t bytes, std::size_t, CUdeviceptr, unsigned long long) {
  void* memory = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  *address = reinterpret_cast<CUdeviceptr>(memory);
  return memory != MAP_FAILED ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}
CUresult create(CUmemGenericAllocationHandle* handle, std::size_t, const CUmemAllocationProp*, unsigned long long) {
  *handle = 1;
  return CUDA_SUCCESS;
}
CUresult map_memory(CUdeviceptr address, std::size_t bytes, std::size_t, CUmemGenericAllocationHandle,
                    unsigned long long) {
  if (mprotect(reinterpret_cast<void*>(address), bytes, PROT_READ | PROT_WRITE) != 0) return CUDA_ERROR_INVALID_VALUE;
  std::memset(reinterpret_cast<void*>(address), 0xff, bytes);
  return CUDA_SUCCESS;
}
CUresult set_access(CUdeviceptr, std::size_t, const CUmemAccessDesc*, std::size_t) {
  return CUDA_SUCCESS;
}
CUresult unmap(CUdeviceptr address, std::size_t bytes) {
  return mprotect(reinterpret_cast<void*>(address), bytes, PROT_NONE) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult release(CUmemGenericAllocationHandle) {
  return CUDA_SUCCESS;
}
CUresult free_addresses(CUdeviceptr address, std::size_t bytes) {
  return munmap(reinterpret_cast<void*>(address), bytes) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

struct DriverFunction {
  const char* name;
  void* function;
};
template <class Function>
DriverFunction driver_function(const char* name, Function* function) {
  return {name, reinterpret_cast<void*>(function)};
}

}  // namespace

cudaError_t check_launch(const void* kernel, const LaunchShape& shape) {
  const std::size_t ctas = std::size_t{shape.grid.x} * shape.grid.y * shape.grid.z;
  if (ctas == 0 || shape.threads.x == 0 || shape.threads.x > 1024 || shape.threads.y != 1 || shape.threads.z != 1)
    return result(cudaErrorInvalidConfiguration);
  if (shape.grid.x % shape.ctas_per_cluster != 0) return result(cudaErrorInvalidConfiguration);
  SharedLimits& limits = shared_limits();
  const std::lock_guard lock(limits.mutex);
  const auto allowed = limits.bytes.find(kernel);
  const int most = allowed != limits.bytes.end() ? allowed->second : kStaticSharedLimit;
  if (shape.shared_bytes > static_cast<std::size_t>(most)) return result(cudaErrorInvalidValue);
  return cudaSuccess;
}

}  // namespace flashdma_bwd::emulated

using namespace flashdma_bwd::emulated;  // NOLINT(google-build-using-namespace): what follows are its C functions

extern "C" {

// --- Devices ---

cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int device) {
  return result(device == 0 ? cudaSuccess : cudaErrorInvalidDevice);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int) {
  *properties = {};
  std::snprintf(properties->name, sizeof properties->name, "emulated device");
  properties->major = 9;
  properties->multiProcessorCount = multiprocessors();
  properties->sharedMemPerBlockOptin = kSharedBytes;
  properties->totalGlobalMem = std::size_t{4} << 30;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = multiprocessors();
      return cudaSuccess;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *value = static_cast<int>(kSharedBytes);
      return cudaSuccess;
    default:
      return result(cudaErrorNotSupported);
  }
}
cudaError_t cudaDeviceSynchronize() {
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const DriverFunction functions[] = {driver_function("cuTensorMapEncodeTiled", encode_tiled),
                                      driver_function("cuMemGetAllocationGranularity", granularity),
                                      driver_function("cuMemAddressReserve", reserve),
                                      driver_function("cuMemCreate", create),
                                      driver_function("cuMemMap", map_memory),
                                      driver_function("cuMemSetAccess", set_access),
                                      driver_function("cuMemUnmap", unmap),
                                      driver_function("cuMemRelease", release),
                                      driver_function("cuMemAddressFree", free_addresses)};
  *found = cudaDriverEntryPointSymbolNotFound;
  for (const auto& [name, address] : functions)
    if (std::strcmp(name, symbol) == 0) {
      *function = address;
      *found = cudaDriverEntryPointSuccess;
    }
  return cudaSuccess;
}

// --- Errors ---

cudaError_t cudaGetLastError() {
  const cudaError_t error = last_error;
  last_error = cudaSuccess;
  return error;
}
cudaError_t cudaPeekAtLastError() {
  return last_error;
}
const char* cudaGetErrorName(cudaError_t error) {
  return error == cudaSuccess ? "cudaSuccess" : "cudaError";
}
const char* cudaGetErrorString(cudaError_t error) {
  static thread_local char text[64];
  std::snprintf(text, sizeof text, "error %d of the emulated device", static_cast<int>(error));
  return error == cudaSuccess ? "no error" : text;
}

// --- Memory ---

cudaError_t cudaMalloc(void** memory, std::size_t bytes) {
  constexpr std::size_t kAlignment = 256;
  if (bytes > std::size_t{4} << 30) return result(cudaErrorMemoryAllocation);
  *memory = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (*memory == nullptr) return result(cudaErrorMemoryAllocation);
  std::memset(*memory, 0xff, bytes);
  return cudaSuccess;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** memory, std::size_t bytes) {
  return cudaMalloc(memory, bytes);
}
cudaError_t cudaFreeHost(void* memory) {
  return cudaFree(memory);
}
cudaError_t cudaMemGetInfo(std::size_t* free_bytes, std::size_t* all) {
  *free_bytes = *all = std::size_t{4} << 30;
  return cudaSuccess;
}
cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind) {
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  return cudaMemcpy(to, from, bytes, kind);
}
cudaError_t cudaMemset(void* memory, int value, std::size_t bytes) {
  std::memset(memory, value, bytes);
  return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* memory, int value, std::size_t bytes, cudaStream_t) {
  return cudaMemset(memory, value, bytes);
}

// --- Streams and events ---

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  *stream = reinterpret_cast<cudaStream_t>(new char{});
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  delete reinterpret_cast<char*>(stream);
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) {
  return cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t, cudaHostFn_t function, void* data) {
  function(data);
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t, cudaStreamCaptureStatus* status) {
  *status = cudaStreamCaptureStatusNone;
  return cudaSuccess;
}
cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode*) {
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* event) {
  *event = reinterpret_cast<cudaEvent_t>(new Event{});
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete &event_of(event);
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t) {
  event_of(event).time = std::chrono::steady_clock::now();
  return cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t) {
  return cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t begin, cudaEvent_t end) {
  *milliseconds = std::chrono::duration<float, std::milli>(event_of(end).time - event_of(begin).time).count();
  return cudaSuccess;
}

// --- Kernels ---

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute attribute, int value) {
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return result(cudaErrorNotSupported);
  if (value > static_cast<int>(kSharedBytes)) return result(cudaErrorInvalidValue);
  SharedLimits& limits = shared_limits();
  const std::lock_guard lock(limits.mutex);
  limits.bytes[kernel] = value;
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
  *attributes = {};
  return cudaSuccess;
}

// --- Graphs: none ---

cudaError_t cudaStreamBeginCapture(cudaStream_t, cudaStreamCaptureMode) {
  return result(cudaErrorNotSupported);
}
cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) {
  return result(cudaErrorNotSupported);
}
}
