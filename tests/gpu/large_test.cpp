// More than 2^31 pairs: masks, biases and dBias whose elements 32-bit offsets cannot reach.
//
// No forward of such a size runs here. The backward is a function of any O and LSE, so both are given random or
// constant values, and the CPU backend computes a few rows as a shard of the problem (query_offset and key_offset say
// where it lies). The rows of a mask or bias are windows into one short random pattern, so that the host can make any
// part of them without holding the whole.
#include <cmath>
#include <cstdio>
#include <cstring>
#include <vector>

#include "gpu/device_problem.hpp"
#include "reference/number_formats.hpp"
#include "reference/reference_backward.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/random.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

constexpr std::int64_t kLength = 46405;  // its square exceeds 2^31, and it is no multiple of a tile
constexpr std::int64_t kShift = 4096;    // rows begin at one of so many places of the pattern
constexpr std::int64_t kShard = 40;      // rows that are checked together
constexpr int kHeadDim = 32;
const std::int64_t kShards[] = {0, kLength / 2 + 13, kLength - kShard};

std::size_t index(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

std::int64_t row_shift(std::int64_t head, std::int64_t row) {
  return (row * 37 + head * 1013) % kShift;
}

/// [rows, heads, d] on the host and on the device.
struct Rows {
  std::vector<std::uint16_t> host;
  DeviceMemory device;

  Rows(std::int64_t heads, std::uint64_t seed) : host(index(kLength * heads * kHeadDim)), device(host.size() * 2) {
    Random random(seed);
    for (std::uint16_t& value : host) value = bf16_from_double(random.normal());
    require_cuda(cudaMemcpy(device.data(), host.data(), device.bytes(), cudaMemcpyHostToDevice), "upload");
  }
  /// An output, poisoned.
  explicit Rows(std::int64_t heads) : host(index(kLength * heads * kHeadDim), 0xffff), device(host.size() * 2) {
    require_cuda(cudaMemset(device.data(), 0xff, device.bytes()), "poison");
  }
  void download() {
    require_cuda(cudaMemcpy(host.data(), device.data(), device.bytes(), cudaMemcpyDeviceToHost), "download");
  }
};

Tensor tensor(void* data, std::int64_t heads) {
  return {data, kLength * heads * kHeadDim, heads * kHeadDim, kHeadDim};
}

/// A tensor of pairs [1, heads, kLength, kLength] on the device whose rows are windows into a pattern.
template <class Element>
struct PatternPairs {
  std::vector<Element> pattern;
  DeviceMemory device;
  std::int64_t heads;

  template <class Draw>
  PatternPairs(std::int64_t head_count, const Draw& draw)
      : pattern(index(kLength + kShift)),
        device(index(head_count * kLength * kLength) * sizeof(Element)),
        heads(head_count) {
    for (Element& element : pattern) element = draw();
    DeviceMemory source(pattern.size() * sizeof(Element));
    require_cuda(cudaMemcpy(source.data(), pattern.data(), source.bytes(), cudaMemcpyHostToDevice),
                 "upload of a pattern");
    const std::size_t row_bytes = index(kLength) * sizeof(Element);
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t row = 0; row < kLength; ++row)
        require_cuda(cudaMemcpyAsync(device.data() + index(head * kLength + row) * row_bytes,
                                     source.data() + index(row_shift(head, row)) * sizeof(Element), row_bytes,
                                     cudaMemcpyDeviceToDevice, nullptr),
                     "copy of a row");
    require_cuda(cudaDeviceSynchronize(), "copies of rows");
  }
  PairTensor on_device(std::int32_t type) const {
    return {device.data(),     type,    0, 1, heads, kLength, kLength, heads * kLength * kLength,
            kLength * kLength, kLength, 1};
  }
  /// Rows [row, row + rows) and columns [column, column + columns) of all heads.
  std::vector<Element> part(std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) const {
    std::vector<Element> elements(index(heads * rows * columns));
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t r = 0; r < rows; ++r)
        std::memcpy(&elements[index((head * rows + r) * columns)], &pattern[index(row_shift(head, row + r) + column)],
                    index(columns) * sizeof(Element));
    return elements;
  }
};

PairTensor host_pairs(void* data, std::int32_t type, std::int64_t heads, std::int64_t rows, std::int64_t columns) {
  return {data, type, 0, 1, heads, rows, columns, heads * rows * columns, rows * columns, columns, 1};
}

std::vector<double> widened(const std::uint16_t* values, std::size_t count) {
  std::vector<double> wide(count);
  for (std::size_t i = 0; i < count; ++i) wide[i] = static_cast<double>(bf16_to_float(values[i]));
  return wide;
}

bool has_memory(double device_gigabytes) {
  std::size_t free_bytes = 0, total_bytes = 0;
  require_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo");
  if (static_cast<double>(free_bytes) >= device_gigabytes * 1e9) return true;
  std::printf("skipped: a problem beyond 2^31 pairs needs %.0f GB of free device memory, this GPU has %.1f\n",
              device_gigabytes, static_cast<double>(free_bytes) / 1e9);
  return false;
}

/// A problem with its tensors in both memories; host.* point to host memory.
struct LargeProblem {
  std::int64_t heads, heads_kv;
  Rows q, k, v, out, d_out, d_q, d_k, d_v;
  std::vector<float> lse;
  DeviceMemory device_lse;
  Arguments device, host;

  LargeProblem(std::int64_t head_count, std::int64_t kv_count, float lse_value)
      : heads(head_count),
        heads_kv(kv_count),
        q(heads, 1),
        k(heads_kv, 2),
        v(heads_kv, 3),
        out(heads, 4),
        d_out(heads, 5),
        d_q(heads),
        d_k(heads_kv),
        d_v(heads_kv),
        lse(index(heads * kLength), lse_value),
        device_lse(lse.size() * sizeof(float)) {
    require_cuda(cudaMemcpy(device_lse.data(), lse.data(), device_lse.bytes(), cudaMemcpyHostToDevice),
                 "upload of the LSE");
    device.data_type = FLASHDMA_BWD_BF16;
    device.head_dim = kHeadDim;
    device.batch = 1;
    device.heads = heads;
    device.heads_kv = heads_kv;
    device.seqlen_q = device.seqlen_k = kLength;
    device.lse_stride_batch = heads * kLength;
    device.lse_stride_head = kLength;
    device.lse_stride_row = 1;
    host = device;
    host.global_seqlen_q = host.global_seqlen_k = kLength;
    const auto set = [](Arguments& a, auto member, void* data, std::int64_t count) { a.*member = tensor(data, count); };
    const auto set_both = [&](auto member, Rows& rows, std::int64_t count) {
      set(device, member, rows.device.data(), count);
      set(host, member, rows.host.data(), count);
    };
    set_both(&Arguments::q, q, heads);
    set_both(&Arguments::k, k, heads_kv);
    set_both(&Arguments::v, v, heads_kv);
    set_both(&Arguments::out, out, heads);
    set_both(&Arguments::d_out, d_out, heads);
    set_both(&Arguments::d_q, d_q, heads);
    set_both(&Arguments::d_k, d_k, heads_kv);
    set_both(&Arguments::d_v, d_v, heads_kv);
    device.lse = reinterpret_cast<const float*>(device_lse.data());
    host.lse = lse.data();
  }

  void run() {
    std::size_t bytes = 0;
    const Status size = workspace_size(device, bytes);
    INFO(size.message());
    REQUIRE(size.code() == FLASHDMA_BWD_OK);
    DeviceMemory workspace(bytes);
    require_cuda(cudaMemset(workspace.data(), 0xff, bytes), "poison of the workspace");
    DeviceStream stream;
    require_cuda(cudaDeviceSynchronize(), "uploads");
    const Status status = backward(device, workspace.data(), bytes, stream.get());
    INFO(status.message());
    REQUIRE(status.code() == FLASHDMA_BWD_OK);
    require_cuda(cudaStreamSynchronize(stream.get()), "the backward");
    for (Rows* rows : {&d_q, &d_k, &d_v}) rows->download();
  }

  /// The host's arguments for queries [row, row + kShard), with outputs of their own.
  Arguments query_shard(std::int64_t row, std::vector<std::uint16_t>& outputs) {
    Arguments a = host;
    a.seqlen_q = kShard;
    a.query_offset = row;
    for (Tensor* t : {&a.q, &a.out, &a.d_out}) t->data = static_cast<std::uint16_t*>(t->data) + row * t->stride_row;
    a.lse += row;
    return with_outputs(a, kShard, kLength, outputs);
  }
  /// The same for keys [row, row + kShard).
  Arguments key_shard(std::int64_t row, std::vector<std::uint16_t>& outputs) {
    Arguments a = host;
    a.seqlen_k = kShard;
    a.key_offset = row;
    for (Tensor* t : {&a.k, &a.v}) t->data = static_cast<std::uint16_t*>(t->data) + row * t->stride_row;
    return with_outputs(a, kLength, kShard, outputs);
  }
  Arguments with_outputs(Arguments a, std::int64_t queries, std::int64_t keys,
                         std::vector<std::uint16_t>& outputs) const {
    const std::size_t q_size = index(queries * heads * kHeadDim), k_size = index(keys * heads_kv * kHeadDim);
    outputs.assign(q_size + 2 * k_size, 0xffff);
    a.d_q = tensor(outputs.data(), heads);
    a.d_k = tensor(outputs.data() + q_size, heads_kv);
    a.d_v = tensor(outputs.data() + q_size + k_size, heads_kv);
    return a;
  }

  /// Checks rows of a downloaded output against a shard's.
  void check_rows(const char* name, const Rows& got, std::int64_t row, std::int64_t count, const void* expected) const {
    const std::size_t size = index(kShard * count * kHeadDim);
    const double error = relative_error(widened(got.host.data() + row * count * kHeadDim, size),
                                        widened(static_cast<const std::uint16_t*>(expected), size));
    INFO(name);
    INFO(row);
    CHECK(error <= error_bar(FLASHDMA_BWD_BF16));
  }
  void require_reference(const Arguments& a) const {
    std::string message;
    const flashdma_bwd_code code = reference_backward(a, 0, message);
    INFO(message);
    REQUIRE(code == FLASHDMA_BWD_OK);
  }
};

}  // namespace

TEST_CASE("a mask of more than 2^32 elements", "[large]") {
  if (!has_memory(7)) return;
  constexpr double kKept = 0.1;
  Random random(11);
  const PatternPairs<std::uint8_t> mask(2, [&] { return static_cast<std::uint8_t>(random.uniform() < kKept ? 1 : 0); });
  LargeProblem problem(2, 1, static_cast<float>(std::log(kKept * kLength)));
  problem.device.mask = mask.on_device(0);
  problem.device.causal = problem.host.causal = 1;
  problem.run();
  std::vector<std::uint16_t> outputs;
  for (std::int64_t row : kShards) {
    Arguments a = problem.query_shard(row, outputs);
    std::vector<std::uint8_t> part = mask.part(row, kShard, 0, kLength);
    a.mask = host_pairs(part.data(), 0, 2, kShard, kLength);
    problem.require_reference(a);
    problem.check_rows("dQ", problem.d_q, row, 2, a.d_q.data);
  }
  for (std::int64_t row : kShards) {
    Arguments a = problem.key_shard(row, outputs);
    std::vector<std::uint8_t> part = mask.part(0, kLength, row, kShard);
    a.mask = host_pairs(part.data(), 0, 2, kLength, kShard);
    problem.require_reference(a);
    problem.check_rows("dK", problem.d_k, row, 1, a.d_k.data);
    problem.check_rows("dV", problem.d_v, row, 1, a.d_v.data);
  }
}

TEST_CASE("a bias and a dBias of more than 2^31 elements", "[large]") {
  if (!has_memory(10)) return;
  Random random(12);
  const PatternPairs<std::uint16_t> bias(1, [&] { return bf16_from_double(random.normal()); });
  // The mean of exp(s) over normal scores and biases, each of variance 1, is e.
  LargeProblem problem(1, 1, static_cast<float>(std::log(kLength) + 1));
  DeviceMemory d_bias(index(kLength * kLength) * 2);
  require_cuda(cudaMemset(d_bias.data(), 0xff, d_bias.bytes()), "poison of dBias");
  problem.device.bias = bias.on_device(FLASHDMA_BWD_BF16);
  problem.device.d_bias = host_pairs(d_bias.data(), FLASHDMA_BWD_BF16, 1, kLength, kLength);
  problem.run();
  std::vector<std::uint16_t> outputs;
  for (std::int64_t row : kShards) {
    Arguments a = problem.query_shard(row, outputs);
    std::vector<std::uint16_t> part = bias.part(row, kShard, 0, kLength);
    std::vector<std::uint16_t> expected(part.size(), 0xffff), got(part.size());
    a.bias = host_pairs(part.data(), FLASHDMA_BWD_BF16, 1, kShard, kLength);
    a.d_bias = host_pairs(expected.data(), FLASHDMA_BWD_BF16, 1, kShard, kLength);
    problem.require_reference(a);
    problem.check_rows("dQ", problem.d_q, row, 1, a.d_q.data);
    require_cuda(
        cudaMemcpy(got.data(), d_bias.data() + index(row * kLength) * 2, got.size() * 2, cudaMemcpyDeviceToHost),
        "download");
    INFO(row);
    CHECK(relative_error(widened(got.data(), got.size()), widened(expected.data(), expected.size())) <=
          error_bar(FLASHDMA_BWD_BF16));
  }
  for (std::int64_t row : kShards) {
    Arguments a = problem.key_shard(row, outputs);
    std::vector<std::uint16_t> part = bias.part(0, kLength, row, kShard);
    a.bias = host_pairs(part.data(), FLASHDMA_BWD_BF16, 1, kLength, kShard);
    problem.require_reference(a);
    problem.check_rows("dK", problem.d_k, row, 1, a.d_k.data);
    problem.check_rows("dV", problem.d_v, row, 1, a.d_v.data);
  }
}
