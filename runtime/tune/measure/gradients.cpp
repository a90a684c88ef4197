// Copies and norms.
#include "tune/measure/gradients.hpp"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>

#include "reference/number_formats.hpp"

namespace flashdma_bwd::tune {
namespace {

/// A tensor without gaps.
struct Extent {
  void* data = nullptr;
  std::int64_t elements = 0;
  std::int32_t type = 0;
  std::size_t bytes() const { return static_cast<std::size_t>(elements * element_bytes(type)); }
};

Extent extent_of(const Tensor& tensor, const Arguments& a, std::int64_t rows, std::int64_t heads) {
  return {tensor.data, a.batch * rows * heads * a.head_dim, a.data_type};
}

Extent extent_of(const PairTensor& tensor) {
  return {tensor.data, tensor.batch * tensor.heads * tensor.rows * tensor.columns, tensor.data_type};
}

std::vector<Extent> outputs_of(const Arguments& a) {
  std::vector<Extent> extents{extent_of(a.d_q, a, a.seqlen_q, a.heads), extent_of(a.d_k, a, a.seqlen_k, a.heads_kv),
                              extent_of(a.d_v, a, a.seqlen_k, a.heads_kv)};
  if (a.d_bias.data != nullptr) extents.push_back(extent_of(a.d_bias));
  return extents;
}

/// Appends them.
void widen(const std::vector<std::byte>& bytes, std::int32_t type, std::vector<float>& values) {
  const std::size_t before = values.size();
  const std::size_t count = bytes.size() / static_cast<std::size_t>(element_bytes(type));
  values.resize(before + count);
  for (std::size_t i = 0; i < count; ++i)
    values[before + i] = load_element(bytes.data(), type, static_cast<std::int64_t>(i));
}

/// Host copies of device memory, one after the other.
class HostCopies {
 public:
  /// Replaces a device pointer by one to a copy of what it points to.
  template <class Pointer>
  void copy(Pointer& pointer, std::size_t bytes) {
    if (pointer == nullptr || !error_.empty()) return;
    std::vector<std::byte>& memory = memory_.emplace_back(bytes);
    const cudaError_t error = cudaMemcpy(memory.data(), pointer, bytes, cudaMemcpyDeviceToHost);
    if (error != cudaSuccess) error_ = std::string("copying to the host: ") + cudaGetErrorString(error);
    pointer = reinterpret_cast<Pointer>(memory.data());
  }
  /// Replaces a device pointer by one to memory that is to be written.
  void make(void*& pointer, std::size_t bytes) {
    if (pointer != nullptr) pointer = memory_.emplace_back(bytes).data();
  }
  const std::string& error() const { return error_; }

 private:
  std::vector<std::vector<std::byte>> memory_;
  std::string error_;
};

}  // namespace

std::string poison_gradients(const Arguments& arguments) {
  constexpr int kNan = 0xff;
  for (const Extent& extent : outputs_of(arguments))
    if (const cudaError_t error = cudaMemset(extent.data, kNan, extent.bytes()); error != cudaSuccess)
      return std::string("poisoning the gradients: ") + cudaGetErrorString(error);
  return {};
}

std::string read_gradients(const Arguments& arguments, std::int64_t most, GradientSample& sample) {
  constexpr std::int64_t kBlocks = 64;
  sample.tensors.clear();
  for (const Extent& extent : outputs_of(arguments)) {
    std::vector<float>& values = sample.tensors.emplace_back();
    // Everything as one block, or blocks from the first element to the last at equal distances.
    const bool all = extent.elements <= most;
    const std::int64_t blocks = all ? 1 : kBlocks, length = all ? extent.elements : most / kBlocks;
    values.reserve(static_cast<std::size_t>(blocks * length));
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t first = all ? 0 : block * ((extent.elements - length) / (kBlocks - 1));
      std::vector<std::byte> bytes(static_cast<std::size_t>(length * element_bytes(extent.type)));
      const cudaError_t error =
          cudaMemcpy(bytes.data(), static_cast<const std::byte*>(extent.data) + first * element_bytes(extent.type),
                     bytes.size(), cudaMemcpyDeviceToHost);
      if (error != cudaSuccess) return std::string("reading the gradients: ") + cudaGetErrorString(error);
      widen(bytes, extent.type, values);
    }
  }
  return {};
}

std::string reference_gradients(const Arguments& arguments, GradientSample& sample) {
  Arguments host = arguments;
  HostCopies copies;
  const auto bytes_of = [&](std::int64_t rows, std::int64_t heads) {
    return static_cast<std::size_t>(host.batch * rows * heads * host.head_dim * 2);
  };
  for (Tensor* tensor : {&host.q, &host.out, &host.d_out})
    copies.copy(tensor->data, bytes_of(host.seqlen_q, host.heads));
  for (Tensor* tensor : {&host.k, &host.v}) copies.copy(tensor->data, bytes_of(host.seqlen_k, host.heads_kv));
  copies.copy(host.lse, static_cast<std::size_t>(host.batch * host.heads * host.seqlen_q) * sizeof(float));
  const PairTensor& mask = host.mask;  // bytes
  copies.copy(host.mask.data, static_cast<std::size_t>(mask.batch * mask.heads * mask.rows * mask.columns));
  copies.copy(host.bias.data, extent_of(host.bias).bytes());
  copies.make(host.d_q.data, bytes_of(host.seqlen_q, host.heads));
  for (Tensor* tensor : {&host.d_k, &host.d_v}) copies.make(tensor->data, bytes_of(host.seqlen_k, host.heads_kv));
  copies.make(host.d_bias.data, extent_of(host.d_bias).bytes());
  if (!copies.error().empty()) return copies.error();
  host.plan = nullptr;
  host.schedule = nullptr;
  host.kernel = nullptr;
  if (const Status status = backward_reference(host); !status) return "the CPU backend: " + status.message();
  sample.tensors.clear();
  for (const Extent& extent : outputs_of(host)) {
    const auto* data = static_cast<const std::byte*>(extent.data);
    widen({data, data + extent.bytes()}, extent.type, sample.tensors.emplace_back());
  }
  return {};
}

double relative_error(const GradientSample& got, const GradientSample& expected) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if (got.tensors.size() != expected.tensors.size()) return kInfinity;
  double largest = 0;
  for (std::size_t t = 0; t < got.tensors.size(); ++t) {
    if (got.tensors[t].size() != expected.tensors[t].size()) return kInfinity;
    double difference = 0, norm = 0;
    for (std::size_t i = 0; i < got.tensors[t].size(); ++i) {
      const auto a = static_cast<double>(got.tensors[t][i]), b = static_cast<double>(expected.tensors[t][i]);
      difference += (a - b) * (a - b);
      norm += b * b;
    }
    if (!std::isfinite(difference) || !std::isfinite(norm)) return kInfinity;
    if (difference > 0) largest = std::max(largest, norm > 0 ? std::sqrt(difference / norm) : kInfinity);
  }
  return largest;
}

double error_bar(std::int32_t data_type) {
  return data_type == FLASHDMA_BWD_FP16 ? 1.2e-3 : 8e-3;
}

}  // namespace flashdma_bwd::tune
