// Device memory that has no neighbours, by the driver's virtual memory management.
#include "gpu/lonely_memory.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

namespace flashdma_bwd::testing {
namespace {

/// Addresses on either side: more than a tensor map's address lies before its tensor.
constexpr std::size_t kGap = std::size_t{64} << 20;

void require(CUresult result, const char* what) {
  if (result != CUDA_SUCCESS) throw std::runtime_error(std::string(what) + ": error " + std::to_string(result));
}

/// A function of the driver, found through the runtime, so that the tests need not link the driver.
template <class Function>
Function* driver_function(Function*, const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found;
  if (cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found) != cudaSuccess ||
      found != cudaDriverEntryPointSuccess)
    throw std::runtime_error(std::string("the driver has no ") + name);
  return reinterpret_cast<Function*>(function);
}
#define DRIVER(name) driver_function(&name, #name)

}  // namespace

LonelyMemory::LonelyMemory(std::size_t bytes) {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || cudaFree(nullptr) != cudaSuccess) throw std::runtime_error("no device");
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, device};
  std::size_t page = 0;
  require(DRIVER(cuMemGetAllocationGranularity)(&page, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM), "page size");
  bytes_ = (std::max<std::size_t>(bytes, 1) + page - 1) / page * page;
  const std::size_t gap = (kGap + page - 1) / page * page;
  reserved_bytes_ = bytes_ + 2 * gap;
  require(DRIVER(cuMemAddressReserve)(&reserved_, reserved_bytes_, 0, 0, 0), "addresses");
  address_ = reserved_ + gap;
  require(DRIVER(cuMemCreate)(&memory_, bytes_, &properties, 0), "memory");
  require(DRIVER(cuMemMap)(address_, bytes_, 0, memory_, 0), "mapping");
  const CUmemAccessDesc access{properties.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  require(DRIVER(cuMemSetAccess)(address_, bytes_, &access, 1), "access");
}

LonelyMemory::LonelyMemory(LonelyMemory&& other) noexcept
    : reserved_(std::exchange(other.reserved_, 0)),
      reserved_bytes_(other.reserved_bytes_),
      address_(other.address_),
      bytes_(other.bytes_),
      memory_(other.memory_) {}

LonelyMemory::~LonelyMemory() {
  if (reserved_ == 0) return;
  cudaDeviceSynchronize();
  DRIVER(cuMemUnmap)(address_, bytes_);
  DRIVER(cuMemRelease)(memory_);
  DRIVER(cuMemAddressFree)(reserved_, reserved_bytes_);
}

}  // namespace flashdma_bwd::testing
