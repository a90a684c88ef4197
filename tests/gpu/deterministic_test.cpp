// Deterministic mode gives the same bits on every run; without it, runs differ by no more than rounding.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "gpu/check.hpp"
#include "gpu/device_problem.hpp"
#include "gpu/kernels_under_test.hpp"
#include "gpu/results.hpp"
#include "support/catch.hpp"
#include "support/compare.hpp"
#include "support/run_differences.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

/// Calls visit(device, run, own) with the table's choice and every other kernel that serves the problem.
template <class Visit>
void for_each_kernel(DeviceProblem& device, const Visit& visit) {
  const std::vector<KernelName> names = kernels_for(device.arguments());
  for (const KernelName& name : names) {
    device.arguments().kernel = name.text.c_str();
    INFO(name.text);
    std::string defect;
    const Status status = device.run(defect);
    if (!status && name.architecture != names.front().architecture && not_runnable_here(status)) {
      results().add_not_runnable(name.text, status.message());
      continue;
    }
    INFO(status.message());
    REQUIRE(status.code() == FLASHDMA_BWD_OK);
    CHECK(defect == "");
    visit();
  }
}

std::vector<std::vector<std::byte>> output_bytes(Problem& problem) {
  std::vector<std::vector<std::byte>> bytes;
  for (const Buffer* buffer : problem.outputs()) bytes.push_back(buffer->bytes);
  return bytes;
}

ProblemSpec problem() {
  ProblemSpec spec;
  spec.batch = 2;
  spec.heads = 4;
  spec.heads_kv = 2;
  spec.seqlen_q = 260;
  spec.seqlen_k = 520;
  return spec;
}

std::vector<ProblemSpec> deterministic_problems() {
  std::vector<ProblemSpec> problems(11, problem());
  problems[1].head_dim = 128;
  problems[1].causal = true;
  problems[2].mask = {.structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv}, .probability = 0.05};
  problems[2].bias = {.present = true, .shape = {.batch = false, .heads = PairHeads::one}};
  problems[3].mask = {.structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv, .rows = false}};
  problems[3].bias = {.present = true, .shape = {.batch = false, .heads = PairHeads::one, .rows = false}, .fp32 = true};
  problems[4].mask = {.structure = MaskStructure::block_sparse, .probability = 0.4};
  problems[4].head_dim = 256;
  problems[4].data_type = FLASHDMA_BWD_FP16;
  problems[5].lengths_q = {200, 0, 77, 300};
  problems[5].lengths_k = {100, 64, 129, 500};
  problems[5].bias = {.present = true, .shape = {.batch = false, .rows = true, .columns = false}};
  problems[5].random_out = true;  // else this dBias, the sum of whole rows of dS, is 0
  problems[6].mask = {.structure = MaskStructure::causal_top_w, .shape = {.heads = PairHeads::query}, .width = 30};
  problems[6].softcap = 2;
  problems[7].mask = {.structure = MaskStructure::causal_top_w,
                      .shape = {.heads = PairHeads::kv},
                      .width = 30,
                      .layout = FLASHDMA_BWD_MASK_REORDERED};
  problems[7].bias = {.present = true, .shape = {.heads = PairHeads::kv, .rows = false}};
  problems[7].causal = true;
  problems[8].head_dim = 32;
  problems[8].mask = problems[7].mask;
  problems[8].causal = true;
  problems[9].head_dim = 96;
  problems[9].causal = true;
  problems[9].bias = {.present = true, .shape = {.heads = PairHeads::kv, .rows = false}};
  problems[10].head_dim = 192;
  problems[10].causal = true;
  problems[10].mask = problems[7].mask;
  for (ProblemSpec& spec : problems) spec.deterministic = true;
  return problems;
}

}  // namespace

TEST_CASE("100 deterministic runs are bitwise equal", "[deterministic]") {
  for (const ProblemSpec& spec : deterministic_problems()) {
    Problem host(spec);
    INFO(host.spec().text());
    DeviceProblem device(host);
    for_each_kernel(device, [&] {
      const std::vector<std::vector<std::byte>> first = output_bytes(host);
      int different = 0;
      for (int run = 1; run < 100; ++run) {
        std::string defect;
        REQUIRE(device.run(defect).code() == FLASHDMA_BWD_OK);
        if (output_bytes(host) != first || !defect.empty()) ++different;
      }
      CHECK(different == 0);
    });
    check_problem(spec, Kernels::the_table);
  }
}

// Long enough that D and the zeros of dQ are made while the keys are put in order (preprocesses_beside_plan).
TEST_CASE("a call that builds its plan gives the bits of one that is given it", "[deterministic]") {
  ProblemSpec spec = problem();
  spec.batch = 1;
  spec.heads = 16;
  spec.heads_kv = 4;
  spec.head_dim = 128;
  spec.seqlen_q = spec.seqlen_k = 4096;
  spec.causal = true;
  spec.mask = {.structure = MaskStructure::causal_top_w, .shape = {.heads = PairHeads::kv}, .width = 300};
  spec.bias = {.present = true, .shape = {.heads = PairHeads::kv, .rows = false}};
  spec.deterministic = true;
  Problem host(spec);
  DeviceProblem device(host);
  const auto run = [&] {
    std::string defect;
    const Status status = device.run(defect);
    INFO(status.message());
    REQUIRE(status.code() == FLASHDMA_BWD_OK);
    CHECK(defect == "");
    return output_bytes(host);
  };
  REQUIRE(device.use_prebuilt_plan().code() == FLASHDMA_BWD_OK);
  const auto planned = run();
  device.use_mask();
  for (int repeat = 0; repeat < 10; ++repeat) CHECK((run() == planned));
}

namespace {

constexpr int kRepeats = 1000;

/// Memory of the host to which the GPU copies at its full rate.
class PageLockedMemory {
 public:
  explicit PageLockedMemory(std::size_t bytes) {
    void* memory = nullptr;
    require_cuda(cudaMallocHost(&memory, bytes), "cudaMallocHost");
    data_ = static_cast<std::byte*>(memory);
  }
  PageLockedMemory(const PageLockedMemory&) = delete;
  PageLockedMemory& operator=(const PageLockedMemory&) = delete;
  ~PageLockedMemory() { cudaFreeHost(data_); }
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

/// Compares runs of a kernel with its first one, whose outputs lie in the problem's buffers. Each starts from poisoned
/// outputs, as the first did, and from the workspace that the one before left.
void repeat(Problem& host, DeviceProblem& device) {
  RunDifferences differences(host);
  REQUIRE(device.prepare_buffers().code() == FLASHDMA_BWD_OK);
  std::vector<DeviceMemory> poison;
  std::size_t bytes = 0;
  for (const DeviceMemory& output : device.outputs()) {
    poison.emplace_back(output.bytes());
    require_cuda(cudaMemcpy(poison.back().data(), output.data(), output.bytes(), cudaMemcpyDeviceToDevice), "copy");
    bytes += output.bytes();
  }
  require_cuda(cudaDeviceSynchronize(), "copy");
  const PageLockedMemory memory(bytes);
  std::vector<const std::byte*> outputs;
  std::size_t begin = 0;
  for (const DeviceMemory& output : device.outputs()) {
    outputs.push_back(memory.data() + begin);
    begin += output.bytes();
  }
  const auto copy = [&](void* to, const DeviceMemory& from, cudaMemcpyKind kind) {
    require_cuda(cudaMemcpyAsync(to, from.data(), from.bytes(), kind, device.stream()), "copy");
  };
  for (int run = 1; run < kRepeats; ++run) {
    for (std::size_t i = 0; i < poison.size(); ++i)
      copy(device.outputs()[i].data(), poison[i], cudaMemcpyDeviceToDevice);
    REQUIRE(device.enqueue().code() == FLASHDMA_BWD_OK);
    for (std::size_t i = 0; i < poison.size(); ++i)
      copy(const_cast<std::byte*>(outputs[i]), device.outputs()[i], cudaMemcpyDeviceToHost);
    require_cuda(cudaStreamSynchronize(device.stream()), "a backward");
    differences.add(outputs);
  }
  CHECK(device.finish() == "");  // canaries of the workspace and of the last run's outputs
  INFO(differences.different_runs() << " of " << kRepeats << " runs differ from the first");
  CHECK_FALSE(differences.damaged());
  // Sums in another order differ by float32 roundings; few of those reach the last place of a 16-bit result.
  CHECK(differences.norm_error() <= error_bar(host.spec().data_type) / 4);
  CHECK(differences.element_error() <= 1);
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

/// A small problem of a Hopper kernel: items of several heads, ends of tiles, and CTAs that take several items where
/// the kernel has that.
ProblemSpec repeated_problem(const KernelName& kernel) {
  ProblemSpec spec = problem_for(kernel);
  spec.seqlen_q = 200;
  spec.seqlen_k = 328;
  if (kernel.copies_bias()) make_bias_movable(spec);
  if (contains(kernel.text, "_items_")) {
    // Three key tiles to each head, so that sums have an order, and more items than an H200 has multiprocessors.
    spec.heads = spec.heads_kv = 56;
    spec.seqlen_q = 100;
    spec.seqlen_k = 264;
    spec.causal = true;
  }
  return spec;
}

}  // namespace

// Which of its data types a kernel has makes no difference to who adds when, but where two CTAs hand P over.
TEST_CASE("1000 runs of each Hopper kernel stay within rounding of the first", "[repeat]") {
  std::set<std::string> repeated;
  for (const KernelName& kernel : kernels_under_test()) {
    if (!contains(kernel.text, "_hopper_")) continue;
    if (kernel.data_type == "fp16" && !contains(kernel.text, "_pair_")) continue;
    const ProblemSpec spec = repeated_problem(kernel);
    Problem host(spec);
    INFO(kernel.text << " for " << host.spec().text());
    DeviceProblem device(host);
    device.arguments().kernel = kernel.text.c_str();
    std::string defect;
    const Status status = device.run(defect);
    if (!status && not_runnable_here(status)) {
      results().add_not_runnable(kernel.text, status.message());
      continue;
    }
    INFO(status.message());
    REQUIRE(status.code() == FLASHDMA_BWD_OK);
    REQUIRE(defect == "");
    Selection selection{};
    REQUIRE(select(device.arguments(), selection).code() == FLASHDMA_BWD_OK);
    REQUIRE(selection.kernel == kernel.text);
    repeat(host, device);
    for (const char* kind : {"_items_", "_keybias", "_tilebias", "_softcap", "_pair_"})
      if (contains(kernel.text, kind)) repeated.insert(kind);
    repeated.insert(kernel.head_dim);
  }
  // Where one ran, all kinds did.
  if (repeated.empty() || std::getenv("FLASHDMA_BWD_TEST_KERNELS") != nullptr) return;
  CHECK(repeated == std::set<std::string>{"_items_", "_keybias", "_pair_", "_softcap", "_tilebias", "d128", "d192",
                                          "d256", "d32", "d64", "d96"});
}

TEST_CASE("1000 runs of a mask, and of a tile bias that heads share, stay within rounding of the first", "[repeat]") {
  std::vector<ProblemSpec> problems(2, problem());
  problems[0].batch = 1;
  problems[0].mask = {.structure = MaskStructure::alternating_tiles, .shape = {.heads = PairHeads::kv}};
  problems[1].batch = 1;
  problems[1].head_dim = 128;
  problems[1].data_type = FLASHDMA_BWD_FP16;
  problems[1].bias = {.present = true, .shape = {.heads = PairHeads::one}};
  problems.push_back(problems[1]);
  problems[2].bias.row_padding = 4;  // tensor copies cannot move it: it is read pair by pair
  for (const ProblemSpec& spec : problems) {
    Problem host(spec);
    DeviceProblem device(host);
    Selection selection{};
    REQUIRE(select(device.arguments(), selection).code() == FLASHDMA_BWD_OK);
    INFO(selection.kernel << " for " << host.spec().text());
    // What tensor copies cannot move the Ampere family reads; of the others a GPU's own family is asked.
    const bool hopper = selection.compute_capability == 90 && selection.tier == 0 && spec.bias.row_padding == 0;
    CHECK(contains(selection.kernel, hopper ? "_hopper_" : "_ampere_"));
    std::string defect;
    const Status status = device.run(defect);
    INFO(status.message());
    REQUIRE(status.code() == FLASHDMA_BWD_OK);
    REQUIRE(defect == "");
    repeat(host, device);
  }
}

TEST_CASE("calls in a row, none of which waits for the host, share a workspace", "[repeat]") {
  std::vector<ProblemSpec> problems(4, problem());
  problems[1].seqlen_q = 2000;
  problems[1].head_dim = 128;
  problems[2].mask = {.structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv, .rows = false}};
  problems[2].bias = {.present = true, .shape = {.batch = false, .heads = PairHeads::one, .rows = false}};
  problems[3].deterministic = true;
  problems[3].seqlen_q = 2000;
  problems[3].batch = 1;
  for (const ProblemSpec& spec : problems) {
    Problem host(spec);
    INFO(host.spec().text());
    const Gradients expected = exact_gradients(host);
    DeviceProblem device(host);
    REQUIRE(device.prepare_buffers().code() == FLASHDMA_BWD_OK);
    for (int call = 0; call < 30; ++call) REQUIRE(device.enqueue().code() == FLASHDMA_BWD_OK);
    CHECK(device.finish() == "");
    const GradientErrors errors = gradient_errors(host, read_gradients(host), expected);
    INFO(errors.text());
    CHECK(errors.largest() <= error_bar(spec.data_type));
  }
}
