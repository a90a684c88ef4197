// The C ABI and the C++ API on top of it: messages, select and explain for GPUs that are not here, lists, and plans'
// sizes.
#include <algorithm>
#include <array>
#include <cstring>
#include <flashdma_bwd/flashdma_bwd.hpp>
#include <limits>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "allocations.hpp"
#include "guarded.hpp"
#include "selection/configuration_name.hpp"
#include "selection/vocabulary.hpp"
#include "support/catch.hpp"
#include "tables.hpp"

namespace flashdma_bwd::testing {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Arguments ordinary_arguments() {
  Arguments a;
  a.data_type = FLASHDMA_BWD_BF16;
  a.batch = 2;
  a.heads = 16;
  a.heads_kv = 4;
  a.head_dim = 128;
  a.seqlen_q = a.seqlen_k = 4096;
  return a;
}

Device device_of(const DeviceTraits& traits) {
  return {traits.compute_capability, traits.sm_count, traits.shared_memory_per_block};
}

bool compiled(std::string_view name) {
  const auto names = kernels();
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

TEST_CASE("version and table hash have their documented forms") {
  const std::string version = flashdma_bwd_version();
  CHECK(std::count(version.begin(), version.end(), '.') == 2);
  CHECK(version.find_first_not_of("0123456789.") == std::string::npos);
  const std::string hash = flashdma_bwd_table_hash();
  CHECK(hash.size() == 16);
  CHECK(hash.find_first_not_of("0123456789abcdef") == std::string::npos);
}

TEST_CASE("codes have names that differ") {
  std::set<std::string> names;
  for (int code = FLASHDMA_BWD_OK; code <= FLASHDMA_BWD_OVERRIDE_ERROR; ++code)
    CHECK(names.insert(flashdma_bwd_code_name(static_cast<Code>(code))).second);
}

TEST_CASE("init sets the size, unlimited windows, and zeros") {
  flashdma_bwd_arguments a;
  std::memset(&a, 0xff, sizeof a);
  flashdma_bwd_arguments_init(&a);
  CHECK(a.struct_size == sizeof a);
  CHECK(a.window_left == -1);
  CHECK(a.window_right == -1);
  CHECK(a.kernel == nullptr);
  CHECK(a.scale == 0);
  CHECK(a.d_bias.data == nullptr);
}

TEST_CASE("the compiled kernels are sorted canonical names of the compiled architectures") {
  const auto names = kernels();
  CHECK(std::is_sorted(names.begin(), names.end()));
  CHECK(std::adjacent_find(names.begin(), names.end()) == names.end());
  std::set<std::string_view> found;
  for (const std::string_view name : names) {
    const Parsed<KernelConfig> parsed = parse_configuration_name(name);
    REQUIRE(parsed);
    found.insert(word(parsed.value->architecture));
  }
  CHECK(flashdma_bwd_kernel_name(names.size()) == nullptr);
  auto listed = architectures();
  if (found.count("sm80") + found.count("sm86") + found.count("sm89") != 0) {
    REQUIRE(!listed.empty());
    CHECK(listed.back() == "compute_80");
    listed.pop_back();
  }
  CHECK(std::equal(listed.begin(), listed.end(), found.begin(), found.end()));
}

TEST_CASE("select names what another GPU runs, or says why nothing does") {
  const Arguments a = ordinary_arguments();
  for (const DeviceTraits& traits : {kA100, kRtx3090, kRtx4090, kH100}) {
    const Device device = device_of(traits);
    Selection selection{};
    const Status status = select(a, selection, &device);
    INFO(status.message());
    if (status.ok()) {
      CHECK(selection.compute_capability == traits.compute_capability);
      CHECK(compiled(selection.kernel));
      CHECK(contains(explain(a, &device), std::string("kernel: ") + selection.kernel));
      CHECK(std::string(selection.row_file) == "configs/tables/" + std::string(selection.row_architecture) + ".yaml");
      CHECK(selection.row_line > 0);
      CHECK((selection.tier == 0) == (selection.row_architecture == "sm" + std::to_string(traits.compute_capability)));
    } else {
      CHECK((status.code() == FLASHDMA_BWD_UNSUPPORTED_ARCHITECTURE || status.code() == FLASHDMA_BWD_NOT_COMPILED ||
             status.code() == FLASHDMA_BWD_UNSUPPORTED));
      CHECK(contains(explain(a, &device), status.message()));
    }
  }
}

TEST_CASE("a call's window is known where both sides are limited and leave fewer queries than there are") {
  const Device device = device_of(kH100);
  const auto window = [&](std::int32_t causal, std::int64_t left, std::int64_t right) {
    Arguments a = ordinary_arguments();
    a.causal = causal;
    a.window_left = left;
    a.window_right = right;
    const std::string text = explain(a, &device);
    REQUIRE(contains(text, "seqlen_q"));
    const std::size_t at = text.find("window of ");
    return at == std::string::npos ? 0 : std::stoll(text.substr(at + 10));
  };
  const std::int64_t queries = ordinary_arguments().seqlen_q;
  CHECK(window(1, 255, -1) == 256);
  CHECK(window(1, 0, 7) == 1);
  CHECK(window(0, 100, 27) == 128);
  CHECK(window(0, 100, -1) == 0);
  CHECK(window(0, -1, 100) == 0);
  CHECK(window(1, -1, -1) == 0);
  CHECK(window(1, queries - 2, -1) == queries - 1);
  CHECK(window(1, queries - 1, -1) == 0);
  constexpr std::int64_t kWidest = std::numeric_limits<std::int64_t>::max();
  CHECK(window(0, kWidest, kWidest) == 0);
  CHECK(window(1, kWidest, 0) == 0);
}

TEST_CASE("explain tells of another GPU's table even where this build has no kernels for it") {
  const Arguments a = ordinary_arguments();
  for (const auto& [traits, architecture] : {std::pair{kA100, Architecture::sm80},
                                             {kRtx3090, Architecture::sm86},
                                             {kRtx4090, Architecture::sm89},
                                             {kH100, Architecture::sm90}}) {
    const Device device = device_of(traits);
    const std::string name(word(architecture));
    if (const auto listed = architectures();
        !listed.empty() && std::find(listed.begin(), listed.end(), name) == listed.end())
      continue;
    const std::string text = explain(a, &device);
    INFO(text);
    CHECK(contains(text, "configs/tables/" + name + ".yaml:"));
    CHECK(contains(text, "kernel: bwd_" + name + "_d128_bf16_"));
  }
}

TEST_CASE("select through the C ABI allocates nothing when it succeeds") {
  const Arguments a = ordinary_arguments();
  for (const DeviceTraits& traits : {kA100, kRtx3090, kRtx4090, kH100}) {
    const Device device = device_of(traits);
    Selection selection{};
    selection.struct_size = sizeof selection;
    if (flashdma_bwd_select(&a, &device, &selection) != FLASHDMA_BWD_OK) continue;
    const std::size_t allocated = allocations();
    CHECK(flashdma_bwd_select(&a, &device, &selection) == FLASHDMA_BWD_OK);
    CHECK(allocations() == allocated);
  }
}

TEST_CASE("select refuses a struct of another size and a device that cannot be") {
  const Arguments a = ordinary_arguments();
  Selection selection{};
  CHECK(flashdma_bwd_select(&a, nullptr, &selection) == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(contains(flashdma_bwd_last_message(), "selection.struct_size is 0"));
  const Device device{90, 0, 232448};
  const Status status = select(a, selection, &device);
  CHECK(status.code() == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(contains(status.message(), "device.sm_count is 0"));
}

TEST_CASE("explain works like snprintf") {
  const Arguments a = ordinary_arguments();
  const Device device = device_of(kH100);
  const std::string whole = explain(a, &device);
  REQUIRE(whole.size() > 100);
  CHECK(flashdma_bwd_explain(&a, &device, nullptr, 0) == whole.size());
  std::array<char, 20> part;
  part.fill('x');
  CHECK(flashdma_bwd_explain(&a, &device, part.data(), 10) == whole.size());
  CHECK(std::string(part.data()) == whole.substr(0, 9));
  CHECK(part[10] == 'x');
  CHECK(explain(Arguments()).find("the arguments are refused: ") == 0);
}

TEST_CASE("an unknown kernel in the arguments is an override error") {
  Arguments a = ordinary_arguments();
  a.kernel = "fastest";
  const Device device = device_of(kH100);
  Selection selection{};
  const Status status = select(a, selection, &device);
  CHECK(status.code() == FLASHDMA_BWD_OVERRIDE_ERROR);
  CHECK(contains(status.message(), "arguments.kernel names `fastest`"));
  a.kernel = "";
  CHECK(select(a, selection, &device).code() == FLASHDMA_BWD_OVERRIDE_ERROR);
  CHECK(contains(flashdma_bwd_last_message(), "kernel is an empty text"));
}

TEST_CASE("each thread has its own last message, and success clears it") {
  Arguments wrong = ordinary_arguments();
  wrong.head_dim = 100;
  std::size_t bytes = 0;
  CHECK(flashdma_bwd_workspace_size(&wrong, &bytes) == FLASHDMA_BWD_INVALID_ARGUMENT);
  std::string other = "unset";
  std::thread([&other] { other = flashdma_bwd_last_message(); }).join();
  CHECK(other.empty());
  CHECK(contains(flashdma_bwd_last_message(), "head_dim is 100"));
  Arguments nothing;
  nothing.head_dim = 64;
  CHECK(flashdma_bwd_workspace_size(&nothing, &bytes) == FLASHDMA_BWD_OK);
  CHECK(std::string(flashdma_bwd_last_message()).empty());
}

TEST_CASE("a failure within a call, as of a hook that calls the library, is not the call's") {
  const auto failing = [] { return guarded([] { return Check(invalid("of the inner call")); }); };
  CHECK(guarded([&] {
          CHECK(failing() == FLASHDMA_BWD_INVALID_ARGUMENT);
          CHECK(std::string(flashdma_bwd_last_message()) == "of the inner call");
          return Check();
        }) == FLASHDMA_BWD_OK);
  CHECK(std::string(flashdma_bwd_last_message()).empty());
  CHECK(guarded([&] {
          failing();
          return Check(unsupported("of the outer call"));
        }) == FLASHDMA_BWD_UNSUPPORTED);
  CHECK(std::string(flashdma_bwd_last_message()) == "of the outer call");
}

TEST_CASE("a plan's size follows its mask's shape, and it needs a mask") {
  static unsigned char byte = 1;
  Arguments a = ordinary_arguments();
  std::size_t bytes = 0;
  Status status = plan_size(a, bytes);
  CHECK(status.code() == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(contains(status.message(), "mask.data is NULL"));
  a.mask = {&byte, 0, 0, 2, 1, 4096, 4096, 4096 * 4096, 0, 4096, 1};
  REQUIRE(plan_size(a, bytes).ok());
  // A bit a pair and another while the keys are reordered, and far less than a byte.
  constexpr std::size_t kPairs = 2 * 4096 * 4096;
  CHECK(bytes >= kPairs / 4);
  CHECK(bytes < kPairs * 3 / 8);
  a.mask_layout = FLASHDMA_BWD_MASK_NATURAL;
  REQUIRE(plan_size(a, bytes).ok());
  CHECK(bytes >= kPairs / 8);
  CHECK(bytes < kPairs / 4);
  // A mask that is expanded over heads and batch is one.
  PairTensor& mask = a.mask;
  std::size_t expanded = 0, one = 0;
  mask.heads = a.heads;
  mask.stride_batch = mask.stride_head = 0;
  REQUIRE(plan_size(a, expanded).ok());
  mask.batch = mask.heads = 1;
  REQUIRE(plan_size(a, one).ok());
  CHECK(expanded == one);
  CHECK(one < bytes);
  mask.batch = 2;
  mask.stride_batch = 4096 * 4096;
  a.mask_layout = FLASHDMA_BWD_MASK_AUTO;
  std::size_t compacted = 0;
  a.mask.rows = 1;
  REQUIRE(plan_size(a, compacted).ok());
  CHECK(compacted >= 2 * 4096 * 4);
  CHECK(compacted < bytes);
  // Building checks the memory before it needs a GPU.
  MaskPlan plan{};
  CHECK(plan_build(a, nullptr, compacted, nullptr, plan).code() == FLASHDMA_BWD_INVALID_ARGUMENT);
  alignas(256) static char memory[512];
  status = plan_build(a, memory + 16, compacted, nullptr, plan);
  CHECK(status.code() == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(contains(status.message(), "256-byte aligned"));
  status = plan_build(a, memory, 256, nullptr, plan);
  CHECK(status.code() == FLASHDMA_BWD_WORKSPACE_TOO_SMALL);
  CHECK(contains(status.message(), std::to_string(compacted)));
  CHECK(contains(status.message(), "256 bytes"));
}

TEST_CASE("a plan's size is what the header's formula says") {
  static unsigned char byte = 1;
  for (const auto& [queries, keys] : {std::pair{1, 1}, {300, 450}, {128, 4097}, {2000, 3000}}) {
    Arguments a = ordinary_arguments();
    a.seqlen_q = queries;
    a.seqlen_k = keys;
    const std::int64_t q = (queries + 127) / 128 * 128, k = (keys + 127) / 128 * 128, masks = 2;
    const auto check = [&](std::int64_t bytes_of_mask) {
      std::size_t bytes = 0;
      REQUIRE(plan_size(a, bytes).ok());
      INFO(queries << " queries, " << keys << " keys, layout " << a.mask_layout << ", encoding " << a.mask.encoding);
      CHECK(static_cast<std::int64_t>(bytes) >= masks * bytes_of_mask);
      CHECK(static_cast<std::int64_t>(bytes) <= masks * bytes_of_mask + 9 * 256);  // each part begins anew
    };
    a.mask = {&byte, 0, 0, 2, 1, queries, keys, std::int64_t{queries} * keys, 0, keys, 1};
    a.mask_layout = FLASHDMA_BWD_MASK_NATURAL;
    check(q * k / 8 + q * k / 4096);
    a.mask_layout = FLASHDMA_BWD_MASK_REORDERED;
    check(q * k / 4 + 3 * q * k / 8192 + 28 * keys + k / 4 + 16);
    a.mask.rows = 1;
    a.mask_layout = FLASHDMA_BWD_MASK_COMPACTED;
    check(4 * keys + 4);
    a.mask.encoding = FLASHDMA_BWD_ENCODING_KEY_LIST;
    check(4 * keys + 4 + k / 8);
  }
}

TEST_CASE("monitoring is set and told, and unknown flags and hooks of another size change nothing") {
  CHECK(monitoring() == 0);
  REQUIRE(set_monitoring(FLASHDMA_BWD_MONITOR_NVTX).ok());
  const Status unknown = set_monitoring(1u << 20);
  CHECK(unknown.code() == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(unknown.message().find("flags has unknown bits, 1048576: ") == 0);
  CHECK(monitoring() == FLASHDMA_BWD_MONITOR_NVTX);
  REQUIRE(set_monitoring(0).ok());
  CHECK(monitoring() == 0);

  Hooks hooks;
  REQUIRE(set_hooks(hooks).ok());
  hooks.struct_size -= 1;
  const Status status = set_hooks(hooks);
  CHECK(status.code() == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(contains(status.message(), "hooks.struct_size is " + std::to_string(hooks.struct_size)));
  REQUIRE(clear_hooks().ok());
}

TEST_CASE("counters are read and reset, and refused without their size or a kernel") {
  Counters counters{};
  REQUIRE(read_counters(counters).ok());
  CHECK(counters.calls == 0);
  REQUIRE(set_monitoring(FLASHDMA_BWD_MONITOR_COUNTERS).ok());
  std::memset(&counters, 0xff, sizeof counters);
  REQUIRE(read_counters(counters).ok());
  CHECK(counters.struct_size == sizeof counters);
  CHECK(counters.calls == 0);
  CHECK(counters.tier_calls[FLASHDMA_BWD_TIERS - 1] == 0);
  CHECK(counters.milliseconds == 0);
  CHECK(counters.cache_misses == 0);
  CHECK(kernel_counters().empty());
  CHECK(reset_counters().ok());
  REQUIRE(set_monitoring(0).ok());

  counters.struct_size = 4;
  CHECK(flashdma_bwd_read_counters(&counters) == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(contains(flashdma_bwd_last_message(), "counters.struct_size is 4"));
  CHECK(flashdma_bwd_read_counters(nullptr) == FLASHDMA_BWD_INVALID_ARGUMENT);
  flashdma_bwd_kernel_counters kernel{};
  CHECK(flashdma_bwd_read_kernel_counters(0, &kernel) == FLASHDMA_BWD_INVALID_ARGUMENT);
  kernel.struct_size = sizeof kernel;
  CHECK(flashdma_bwd_read_kernel_counters(kernels().size(), &kernel) == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(contains(flashdma_bwd_last_message(), "this build has " + std::to_string(kernels().size()) + " kernels"));
}

TEST_CASE("timing is on, with counters, or refused without a GPU and then nothing is") {
  REQUIRE(set_monitoring(0).ok());
  const Status status = set_monitoring(FLASHDMA_BWD_MONITOR_TIMING);
  INFO(status.message());
  if (status.ok()) {
    CHECK(monitoring() == (FLASHDMA_BWD_MONITOR_TIMING | FLASHDMA_BWD_MONITOR_COUNTERS));
  } else {
    CHECK((status.code() == FLASHDMA_BWD_UNSUPPORTED_ARCHITECTURE || status.code() == FLASHDMA_BWD_CUDA_ERROR));
    CHECK(monitoring() == 0);
  }
  REQUIRE(set_monitoring(0).ok());
}

}  // namespace flashdma_bwd::testing
