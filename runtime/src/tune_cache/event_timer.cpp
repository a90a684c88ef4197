// See event_timer.hpp.
#include "tune_cache/event_timer.hpp"

#include <chrono>
#include <string>

#include "launch/launch.hpp"

namespace flashdma_bwd {
namespace {

/// The error is reported by the Check: the program's next call must not find it.
Check check(const char* call, cudaError_t error) {
  if (error == cudaSuccess) return {};
  cudaGetLastError();
  return Failure{FLASHDMA_BWD_CUDA_ERROR,
                 std::string(call) + " failed: " + cudaGetErrorName(error) + ", " + cudaGetErrorString(error)};
}

}  // namespace

bool is_capturing(cudaStream_t stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  const cudaError_t error = cudaStreamIsCapturing(stream, &status);
  if (error != cudaSuccess) cudaGetLastError();  // the legacy stream, while another captures
  return error != cudaSuccess || status != cudaStreamCaptureStatusNone;
}

EventTimer::EventTimer(const flashdma_bwd_arguments& arguments, const DeviceTraits& device, void* workspace,
                       cudaStream_t stream)
    : arguments_(arguments), device_(device), workspace_(workspace), stream_(stream) {
  // Without this, loading a kernel would break the capture of any thread that forbids such calls to all of them.
  cudaThreadExchangeStreamCaptureMode(&mode_);
  failed_ = cudaEventCreate(&begin_);
  if (failed_ == cudaSuccess) failed_ = cudaEventCreate(&end_);
}

EventTimer::~EventTimer() {
  if (begin_ != nullptr) cudaEventDestroy(begin_);
  if (end_ != nullptr) cudaEventDestroy(end_);
  cudaThreadExchangeStreamCaptureMode(&mode_);
}

Check EventTimer::prepare(const KernelEntry& kernel) {
  if (Check failure = check("cudaEventCreate", failed_)) return failure;
  const LaunchResult result = prepare_backward(arguments_, kernel);
  return check(result.call, result.error);
}

Check EventTimer::time(const KernelEntry& kernel, double& ms) {
  if (Check failure = check("cudaEventRecord", cudaEventRecord(begin_, stream_))) return failure;
  const LaunchResult result = launch_backward(arguments_, kernel, device_, 0, workspace_, stream_);
  if (Check failure = check(result.call, result.error)) return failure;
  if (Check failure = check("cudaEventRecord", cudaEventRecord(end_, stream_))) return failure;
  if (Check failure = check("cudaEventSynchronize", cudaEventSynchronize(end_))) return failure;
  float elapsed = 0;
  Check failure = check("cudaEventElapsedTime", cudaEventElapsedTime(&elapsed, begin_, end_));
  ms = static_cast<double>(elapsed);
  return failure;
}

double EventTimer::now_ms() {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace flashdma_bwd
