// Device memory that has no neighbours: what is read before it is an illegal memory access, on every run.
#pragma once

#include <cuda.h>

#include <cstddef>

namespace flashdma_bwd::testing {

/// At the start of its own pages, in the middle of reserved addresses without memory.
class LonelyMemory {
 public:
  explicit LonelyMemory(std::size_t bytes);
  LonelyMemory(LonelyMemory&& other) noexcept;
  LonelyMemory& operator=(LonelyMemory&&) = delete;
  ~LonelyMemory();
  std::byte* data() const { return reinterpret_cast<std::byte*>(address_); }

 private:
  CUdeviceptr reserved_ = 0;
  std::size_t reserved_bytes_ = 0;
  CUdeviceptr address_ = 0;
  std::size_t bytes_ = 0;  ///< whole pages
  CUmemGenericAllocationHandle memory_ = 0;
};

}  // namespace flashdma_bwd::testing
