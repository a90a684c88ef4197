// The parts of a call's workspace, one behind the other.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flashdma_bwd {

inline constexpr std::size_t kWorkspaceAlignment = 256;

/// Hands out parts of the workspace. Without memory it only counts, so that the size query and the launch share one
/// layout.
class WorkspaceParts {
 public:
  explicit WorkspaceParts(void* memory) : memory_(static_cast<std::byte*>(memory)) {}

  template <class T>
  T* take(std::int64_t count) {
    std::byte* part = memory_ == nullptr ? nullptr : memory_ + used_;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(T);
    used_ += (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment;
    return reinterpret_cast<T*>(part);
  }
  std::size_t used() const { return used_; }

 private:
  std::byte* memory_;
  std::size_t used_ = 0;
};

}  // namespace flashdma_bwd
