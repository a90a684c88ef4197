// Timing with CUDA's events, which neither waits for the GPU nor disturbs captures or the program's own errors.
#include "monitoring/call_timer.hpp"

#include <array>
#include <atomic>
#include <limits>
#include <memory>
#include <mutex>
#include <string>

#include "device_traits.hpp"

namespace flashdma_bwd {
namespace {

constexpr int kPairs = 512;         // calls in flight on a device
constexpr int kQueriesOfACall = 4;  // more than the one that it adds, so that the pool empties
constexpr int kDevicesWithPools = 64;

constexpr EventFunctions kCuda = {[](cudaEvent_t* event) { return cudaEventCreate(event); },
                                  [](cudaEvent_t event) { return cudaEventDestroy(event); },
                                  [](cudaEvent_t event, cudaStream_t stream) { return cudaEventRecord(event, stream); },
                                  [](cudaEvent_t event) { return cudaEventQuery(event); },
                                  [](float* milliseconds, cudaEvent_t start, cudaEvent_t stop) {
                                    return cudaEventElapsedTime(milliseconds, start, stop);
                                  }};

std::array<std::atomic<EventPool*>, kDevicesWithPools> pools{};  // kept for the library's lifetime

/// While it lives, what is asked of CUDA is allowed while another thread captures a stream, and breaks no capture. At
/// its end no error is left behind that was not there before.
class QuietCuda {
 public:
  QuietCuda() : earlier_(cudaPeekAtLastError()) { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~QuietCuda() {
    cudaThreadExchangeStreamCaptureMode(&mode_);
    if (earlier_ == cudaSuccess) cudaGetLastError();
  }
  QuietCuda(const QuietCuda&) = delete;
  QuietCuda& operator=(const QuietCuda&) = delete;
  /// Whether events can be asked: the answer "not ready" would replace an error that the program has yet to read.
  bool may_query() const { return earlier_ == cudaSuccess || earlier_ == cudaErrorNotReady; }

 private:
  cudaError_t earlier_;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

/// Where CUDA cannot tell, as of the legacy stream while another one is captured, nothing is recorded either.
bool may_be_captured(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  return cudaStreamIsCapturing(stream, &status) != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

/// Where the current device's pool is kept, or nullptr if it has no place.
std::atomic<EventPool*>* place_of_current_device() {
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess || device >= kDevicesWithPools) return nullptr;
  return &pools[static_cast<std::size_t>(device)];
}

}  // namespace

Check switch_on_timing(CallCounters& counters) {
  DeviceTraits device;
  if (Check failure = current_device_traits(device)) return failure;
  static std::mutex making;
  const std::lock_guard<std::mutex> lock(making);
  const QuietCuda quiet;
  std::atomic<EventPool*>* place = place_of_current_device();
  if (place == nullptr)
    return unsupported("timing knows the first " + std::to_string(kDevicesWithPools) +
                       " devices, and the current one is none of them");
  if (place->load(std::memory_order_relaxed) != nullptr) return {};
  auto pool = std::make_unique<EventPool>(kCuda, counters);
  if (const cudaError_t error = pool->create(kPairs); error != cudaSuccess)
    return Failure{FLASHDMA_BWD_CUDA_ERROR, std::string("cudaEventCreate of the events for timing failed: ") +
                                                cudaGetErrorName(error) + ", " + cudaGetErrorString(error)};
  place->store(pool.release(), std::memory_order_release);
  return {};
}

std::uint64_t harvest_times() {
  const QuietCuda quiet;
  std::uint64_t unfinished = 0;
  for (const std::atomic<EventPool*>& place : pools) {
    EventPool* pool = place.load(std::memory_order_acquire);
    if (pool == nullptr) continue;
    if (quiet.may_query()) pool->harvest(std::numeric_limits<int>::max());
    unfinished += static_cast<std::uint64_t>(pool->unfinished());
  }
  return unfinished;
}

void CallTimer::start(cudaStream_t stream) {
  const QuietCuda quiet;
  const std::atomic<EventPool*>* place = place_of_current_device();
  if (place == nullptr || (pool_ = place->load(std::memory_order_acquire)) == nullptr) return;
  if (may_be_captured(stream)) return;
  if (quiet.may_query()) pool_->harvest(kQueriesOfACall);
  pair_ = pool_->start(stream);
}

bool CallTimer::stop(cudaStream_t stream, std::size_t kernel, bool launched) {
  if (pair_ < 0) return false;
  const QuietCuda quiet;
  if (launched) return pool_->stop(pair_, stream, kernel);
  pool_->give_back(pair_);
  return false;
}

}  // namespace flashdma_bwd
