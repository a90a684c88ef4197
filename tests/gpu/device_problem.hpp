// A problem on the GPU: its buffers, poisoned outputs and workspace with canaries, and one backward.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <flashdma_bwd/flashdma_bwd.hpp>
#include <string>
#include <vector>

#include "gpu/lonely_memory.hpp"
#include "support/compare.hpp"
#include "support/problem.hpp"

namespace flashdma_bwd::testing {

/// Throws std::runtime_error with `what` and CUDA's words if `error` is one.
void require_cuda(cudaError_t error, const char* what);

/// Device memory of its own allocation, so that memcheck sees its ends.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(std::size_t bytes);
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();
  std::byte* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
};

/// A stream that does not wait for the legacy default stream.
class DeviceStream {
 public:
  DeviceStream();
  DeviceStream(const DeviceStream&) = delete;
  DeviceStream& operator=(const DeviceStream&) = delete;
  ~DeviceStream();
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// Where a problem's inputs lie: in allocations that memcheck knows the ends of, or in LonelyMemory.
enum class Inputs { plain, lonely };

class DeviceProblem {
 public:
  /// Uploads the inputs. `problem` outlives this and receives the outputs.
  explicit DeviceProblem(Problem& problem, Inputs inputs = Inputs::plain);

  /// The arguments with device pointers.
  Arguments& arguments() { return arguments_; }
  cudaStream_t stream() const { return stream_.get(); }
  /// In the order of the problem's.
  const std::vector<DeviceMemory>& outputs() const { return outputs_; }

  /// Poisons the outputs and a workspace of exactly the size that the library asks for, with canaries after it.
  Status prepare_buffers();
  /// Enqueues the backward only, with the buffers of prepare_buffers.
  Status enqueue();
  /// Waits, copies the outputs into the problem's buffers and looks at all canaries. Empty, or what is wrong.
  std::string finish();
  /// The three of them. Sets `defect` to finish()'s answer.
  Status run(std::string& defect);

  /// Builds a plan of the mask into poisoned memory and uses it from now on: the mask itself is out of reach then.
  Status use_prebuilt_plan();
  /// Builds a schedule of that plan into poisoned memory, followed by canaries, and uses it from now on.
  Status use_schedule();
  /// Back to the mask.
  void use_mask();

 private:
  Problem& problem_;
  DeviceStream stream_;
  Arguments arguments_;
  std::vector<DeviceMemory> inputs_, outputs_;
  std::vector<LonelyMemory> lonely_inputs_;
  std::vector<std::vector<std::byte>> poison_;  ///< what each output holds before a run
  DeviceMemory workspace_, plan_memory_, schedule_memory_;
  std::size_t workspace_bytes_ = 0;
  MaskPlan plan_{};
  Schedule schedule_{};
  PairTensor mask_{};
};

}  // namespace flashdma_bwd::testing
