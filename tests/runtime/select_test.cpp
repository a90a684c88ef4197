// The choice of a kernel over the whole domain, with the generated tables.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <flashdma_bwd/kernel_resources.hpp>
#include <limits>
#include <thread>

#include "allocations.hpp"
#include "selection/configuration_name.hpp"
#include "selection/explain.hpp"
#include "selection/select_kernel.hpp"
#include "selection/vocabulary.hpp"
#include "support/catch.hpp"
#include "tables.hpp"

namespace flashdma_bwd::testing {
namespace {

constexpr DeviceTraits kOwnDevices[] = {kA100, kRtx3090, kRtx4090, kH100};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Independent of the library's own test: the limits of these architectures, from the CUDA C++ Programming Guide.
int shared_memory_limit(Architecture architecture) {
  switch (architecture) {
    case Architecture::sm80:
      return 163 * 1024;
    case Architecture::sm86:
    case Architecture::sm89:
      return 99 * 1024;
    case Architecture::sm90:
      return 227 * 1024;
  }
  return 0;
}

Architecture chosen(const DeviceTraits& device, ArchitectureSet compiled) {
  Problem problem = ordinary_problem();
  problem.head_dim = 256;  // fits every architecture's limit in some table
  const SelectionResult result = select_kernel(device, problem, generated_rows(), compiled);
  REQUIRE(result.status == SelectionStatus::ok);
  return result.config.architecture;
}

}  // namespace

TEST_CASE("every problem of a large sample gets a kernel of the GPU's own table that fits the GPU") {
  for (const DeviceTraits& device : kOwnDevices) {
    ProblemSource source(1);
    for (int i = 0; i < 20000; ++i) {
      const Problem problem = source.next();
      const SelectionResult result = select_kernel(device, problem, generated_rows());
      INFO(device_text(device) << "; " << problem_description(problem));
      REQUIRE(result.status == SelectionStatus::ok);
      REQUIRE(result.tier == 0);
      REQUIRE(result.row != nullptr);
      const KernelConfig& config = result.config;
      REQUIRE(word(config.architecture) == "sm" + std::to_string(device.compute_capability));
      REQUIRE(config.head_dim >= problem.head_dim);
      REQUIRE(config.head_dim == head_dim_bucket(problem.head_dim));
      REQUIRE(config.data_type == problem.data_type);
      REQUIRE(config.bias == problem.bias);
      REQUIRE(config.softcap == problem.softcap);
      REQUIRE(config.tile == result.row->use);
      REQUIRE(shared_memory_bytes(config) <= device.shared_memory_per_block);
      REQUIRE(shared_memory_bytes(config) <= shared_memory_limit(config.architecture));
      REQUIRE(threads_per_block(config.tile) <= 1024);
      REQUIRE(tile_shape_violation(config.tile, config.head_dim) == nullptr);
      // No earlier row of the architecture holds.
      for (const Row* row = generated_rows().data(); row != result.row; ++row)
        if (row->architecture == config.architecture)
          REQUIRE(first_failed_condition(*row, problem, device) != Condition::none);
    }
  }
}

TEST_CASE("explain says what select chooses") {
  for (const DeviceTraits& device : {kA100, kRtx3090, kOrin, kRtx4090, kH100, kB200, kT4}) {
    ProblemSource source(2);
    for (int i = 0; i < 500; ++i) {
      Problem problem = source.next();
      if (i % 50 == 0) problem.head_dim += 4;
      const SelectionResult result = select_kernel(device, problem, generated_rows());
      const std::string text = explain_selection(device, problem, generated_rows());
      INFO(text);
      if (result.status == SelectionStatus::ok) {
        REQUIRE(text.ends_with("kernel: " + configuration_name(result.config) + '\n'));
        REQUIRE(contains(text, std::string(result.row->file) + ':' + std::to_string(result.row->line) + ": " +
                                   tile_name(result.row->use) + ": chosen"));
      } else {
        REQUIRE(contains(text, "no kernel: "));
        REQUIRE_FALSE(contains(text, ": chosen"));
      }
    }
  }
}

TEST_CASE("a GPU falls back to older architectures of its generation, then to PTX, as far as they are compiled in") {
  using enum Architecture;
  CHECK(chosen(kA100, {}) == sm80);
  CHECK(chosen(kRtx3090, {}) == sm86);
  CHECK(chosen(kOrin, {}) == sm86);
  CHECK(chosen(kOrin, set_of({sm80, sm89, sm90})) == sm80);
  CHECK(chosen(kRtx4090, {}) == sm89);
  CHECK(chosen(kRtx4090, set_of({sm80, sm86, sm90})) == sm86);
  CHECK(chosen(kH100, {}) == sm90);
  CHECK(chosen(kH100, set_of({sm80, sm86, sm89})) == sm80);
  CHECK(chosen(kB200, {}) == sm80);
}

TEST_CASE("the tier counts the steps down and the form of code is known") {
  const auto select = [](const DeviceTraits& device, ArchitectureSet compiled) {
    return select_kernel(device, ordinary_problem(), generated_rows(), compiled);
  };
  CHECK(select(kRtx4090, {}).tier == 0);
  CHECK(select(kRtx4090, set_of({Architecture::sm86})).tier == 1);
  CHECK(select(kRtx4090, set_of({Architecture::sm86})).form == CodeForm::native);
  CHECK(select(kOrin, {}).tier == 1);
  CHECK(select(kH100, {}).form == CodeForm::native);
  CHECK(select(kH100, set_of({Architecture::sm80})).tier == 1);
  CHECK(select(kH100, set_of({Architecture::sm80})).form == CodeForm::ptx);
  CHECK(select(kB200, {}).tier == 1);
  CHECK(select(kB200, {}).form == CodeForm::ptx);
  // A newer GPU with little shared memory runs the small tiles where the large ones do not fit.
  const DeviceTraits small{120, 84, 101376};
  CHECK(select(small, {}).form == CodeForm::ptx);
  CHECK(select(small, {}).config.architecture == Architecture::sm86);
}

TEST_CASE("a GPU that nothing compiled can run is refused with its capability, what there is and what to set") {
  const Problem problem = ordinary_problem();
  const auto failure = [&](const DeviceTraits& device, ArchitectureSet compiled) {
    const SelectionResult result = select_kernel(device, problem, generated_rows(), compiled);
    CHECK(result.status == SelectionStatus::unsupported_architecture);
    CHECK(result.row == nullptr);
    return selection_failure(result.status, device, problem, compiled);
  };
  const std::string ampere = failure(kRtx3090, set_of({Architecture::sm89, Architecture::sm90}));
  CHECK(contains(ampere, "compute capability 8.6"));
  CHECK(contains(ampere, "sm89, sm90"));
  CHECK(contains(ampere, "FLASHDMA_BWD_ARCHITECTURES containing sm86 or sm80"));
  const std::string turing = failure(kT4, {});
  CHECK(contains(turing, "compute capability 7.5"));
  CHECK(contains(turing, "flashdma_bwd_backward_reference"));
  CHECK(contains(failure(kB200, set_of({})), "no kernels at all"));
  CHECK(contains(failure(kB200, set_of({})), "FLASHDMA_BWD_KERNELS=ON"));
  // Machine code of 9.0 is specific to it, so that a later 9.x would need the PTX.
  CHECK(contains(failure({91, 132, 232448}, set_of({Architecture::sm90})), "containing sm80"));
}

TEST_CASE("head dims without a bucket are refused") {
  for (const int head_dim : {-8, 0, 4, 12, 100, 257, 264, 512}) {
    Problem problem = ordinary_problem();
    problem.head_dim = head_dim;
    for (const DeviceTraits& device : kOwnDevices)
      CHECK(select_kernel(device, problem, generated_rows()).status == SelectionStatus::unsupported_head_dim);
    CHECK(contains(selection_failure(SelectionStatus::unsupported_head_dim, kA100, problem), std::to_string(head_dim)));
  }
}

TEST_CASE("a row whose shared memory does not fit the GPU fails, and explain has both figures") {
  const Problem problem = ordinary_problem();
  const SelectionResult result = select_kernel(kA100, problem, generated_rows());
  REQUIRE(result.status == SelectionStatus::ok);
  const int needed = shared_memory_bytes(result.config);
  DeviceTraits smaller = kA100;
  smaller.shared_memory_per_block = needed;
  CHECK(select_kernel(smaller, problem, generated_rows()).row == result.row);
  smaller.shared_memory_per_block = needed - 1;
  CHECK(select_kernel(smaller, problem, generated_rows()).row != result.row);
  CHECK(first_failed_condition(*result.row, problem, smaller) == Condition::shared_memory);
  const std::string text = explain_selection(smaller, problem, generated_rows());
  CHECK(contains(text, "at least " + std::to_string(needed) + " bytes, is " + std::to_string(needed - 1)));
}

TEST_CASE("a row of the Hopper family decides like any other, by its own shared memory") {
  Row row = generated_rows()[0];
  row.architecture = Architecture::sm90;
  row.when = {};
  row.when.head_dim = 128;
  row.use = hopper_tile();
  const Problem problem = ordinary_problem();
  const std::vector<Row> rows{row};
  const SelectionResult result = select_kernel(kH100, problem, rows);
  REQUIRE(result.status == SelectionStatus::ok);
  CHECK(result.config.tile == hopper_tile());
  DeviceTraits smaller = kH100;
  smaller.shared_memory_per_block = hopper_shared_memory(result.config).total() - 1;
  CHECK(select_kernel(smaller, problem, rows).status == SelectionStatus::no_row);
  CHECK(contains(explain_selection(kH100, problem, rows), "hopper_m64n128_wg2_q2_do2_ds2_r24c240: chosen"));
}

TEST_CASE("on sm90 the head dim decides who shares an item above 128, unless the bias is in the way") {
  ProblemSource source(6);
  for (int i = 0; i < 20000; ++i) {
    const Problem problem = source.next();
    const SelectionResult result = select_kernel(kH100, problem, generated_rows());
    INFO(problem_description(problem));
    REQUIRE(result.status == SelectionStatus::ok);
    REQUIRE(result.config.architecture == Architecture::sm90);
    // Of tile biases they have those that tensor copies move.
    const bool tile = problem.bias == BiasKind::tile;
    const bool hopper = problem.head_dim > 128 && (!tile || problem.bias_copies);
    // Up to 192, without a mask or turns, one CTA holds transposed gradients of 96 keys, but not with a key bias and a
    // softcap; with few items times decide.
    const bool both = problem.bias == BiasKind::key_vector && problem.softcap;
    const bool may_transpose =
        hopper && problem.head_dim <= 192 && !tile && !both && !problem.masked && !problem.deterministic;
    const bool transposed = accumulates_transposed(result.config.tile);
    if (!may_transpose || work_items_per_sm(problem, kH100) >= 1) REQUIRE(transposed == may_transpose);
    REQUIRE(result.config.tile.cta_pair == (hopper && !transposed));
    if (problem.head_dim > 128)
      REQUIRE(result.config.tile.family == (hopper ? KernelFamily::hopper : KernelFamily::ampere));
  }
}

TEST_CASE("on sm90 kernels of the Hopper family have the tile biases that tensor copies move") {
  ProblemSource source(7);
  for (int i = 0; i < 20000; ++i) {
    Problem problem = source.next();
    problem.bias = BiasKind::tile;
    const SelectionResult result = select_kernel(kH100, problem, generated_rows());
    INFO(problem_description(problem));
    REQUIRE(result.status == SelectionStatus::ok);
    REQUIRE(result.config.tile.family == (problem.bias_copies ? KernelFamily::hopper : KernelFamily::ampere));
  }
}

TEST_CASE("a row of the Hopper family does not hold for a tile bias that tensor copies cannot move") {
  Row row = generated_rows()[0];
  row.architecture = Architecture::sm90;
  row.when = {};
  row.when.head_dim = 128;
  row.use = hopper_tile();
  Problem problem = ordinary_problem();
  problem.bias = BiasKind::tile;
  CHECK(first_failed_condition(row, problem, kH100) == Condition::bias_copies);
  CHECK(contains(explain_selection(kH100, problem, std::vector<Row>{row}), "bias_copies must be yes, is no"));
  problem.bias_copies = true;
  CHECK(first_failed_condition(row, problem, kH100) == Condition::none);
  row.when.bias_copies = Choice::no;
  CHECK(first_failed_condition(row, problem, kH100) == Condition::bias_copies);
  CHECK(contains(explain_selection(kH100, problem, std::vector<Row>{row}), "bias_copies must be no, is yes"));
}

TEST_CASE("a row of two CTAs holds for the problems whose kernel fits the GPU") {
  Row row = generated_rows()[0];
  row.architecture = Architecture::sm90;
  row.when = {};
  row.when.head_dim = 256;
  row.use = hopper_pair_tile();
  const std::vector<Row> rows{row};
  Problem problem = ordinary_problem();
  problem.head_dim = 200;
  const auto holds = [&](BiasKind bias, bool softcap, int shared_memory) {
    problem.bias = bias;
    problem.softcap = softcap;
    DeviceTraits device = kH100;
    device.shared_memory_per_block = shared_memory;
    return select_kernel(device, problem, rows).status == SelectionStatus::ok;
  };
  CHECK(holds(BiasKind::none, true, 231936));
  CHECK_FALSE(holds(BiasKind::none, true, 231935));
  CHECK(holds(BiasKind::key_vector, false, 232192));
  CHECK_FALSE(holds(BiasKind::key_vector, false, 232191));
  CHECK(holds(BiasKind::key_vector, true, 232192));
  CHECK_FALSE(holds(BiasKind::key_vector, true, 232191));
  DeviceTraits smaller = kH100;
  smaller.shared_memory_per_block = 232191;
  CHECK(contains(explain_selection(smaller, problem, rows), "at least 232192 bytes, is 232191"));
}

TEST_CASE("each condition of a row decides, in the order of the rows, and explain shows expected and actual") {
  Row special = generated_rows()[0];
  special.file = "special.yaml";
  special.line = 7;
  special.when = {};
  special.when.head_dim = 128;
  special.use = {KernelFamily::ampere, 64, 64, 8, 4, 4, 2, 1, 1, false};
  const Problem problem = ordinary_problem();
  struct Case {
    Condition condition;
    void (*narrow)(When&);
    const char* explained;
  };
  const Case cases[] = {
      {Condition::head_dim, [](When& w) { w.head_dim = 64; }, "1 rows for other buckets"},
      {Condition::data_type, [](When& w) { w.data_types.bits = 0b01; }, "data_type must be fp16, is bf16"},
      {Condition::bias, [](When& w) { w.biases.bits = 0b110; }, "bias must be key_vector or tile, is none"},
      {Condition::layout, [](When& w) { w.layouts.bits = 0b10; }, "layout must be compacted, is natural"},
      {Condition::bias_copies, [](When& w) { w.bias_copies = Choice::yes; }, "bias_copies must be yes, is no"},
      {Condition::softcap, [](When& w) { w.softcap = Choice::yes; }, "softcap must be yes, is no"},
      {Condition::causal, [](When& w) { w.causal = Choice::yes; }, "causal must be yes, is no"},
      {Condition::deterministic, [](When& w) { w.deterministic = Choice::yes; }, "deterministic must be yes, is no"},
      {Condition::masked, [](When& w) { w.masked = Choice::yes; }, "masked must be yes, is no"},
      {Condition::seqlen_q,
       [](When& w) {
         w.seqlen_q = {0, 4095};
       },
       "seqlen_q must be 0 ... 4095, is 4096"},
      {Condition::seqlen_k, [](When& w) { w.seqlen_k = {4097}; }, "seqlen_k must be at least 4097, is 4096"},
      // 2 x 16 x 32 items on 108 multiprocessors.
      {Condition::work_items_per_sm, [](When& w) { w.work_items_per_sm = {10}; }, "must be at least 10, is 9"},
      {Condition::mask_density,
       [](When& w) {
         w.mask_density = {0, 999};
       },
       "mask_density must be 0 ... 999, is 1000"},
  };
  std::vector<Row> rows{special};
  rows.insert(rows.end(), generated_rows().begin(), generated_rows().end());
  CHECK(select_kernel(kA100, problem, rows).row == &rows[0]);
  for (const Case& c : cases) {
    rows[0] = special;
    c.narrow(rows[0].when);
    INFO(c.explained);
    CHECK(first_failed_condition(rows[0], problem, kA100) == c.condition);
    const SelectionResult result = select_kernel(kA100, problem, rows);
    CHECK(result.status == SelectionStatus::ok);
    CHECK(result.row != &rows[0]);
    const std::string text = explain_selection(kA100, problem, {rows.data(), 1});
    INFO(text);
    CHECK(contains(text, c.explained));
    CHECK(contains(text, "no kernel: "));
  }
}

TEST_CASE("rows ask a window how many queries see a key, not how many there are") {
  Row row = generated_rows()[0];
  row.when = {};
  row.when.head_dim = 128;
  row.when.seqlen_q = {0, 1024};
  row.use = {KernelFamily::ampere, 64, 64, 8, 4, 4, 2, 1, 1, false};
  Problem problem = ordinary_problem();
  problem.causal = true;
  CHECK(queries_of_key(problem) == 4096);
  CHECK(first_failed_condition(row, problem, kA100) == Condition::seqlen_q);
  problem.window = 1024;
  CHECK(queries_of_key(problem) == 1024);
  CHECK(first_failed_condition(row, problem, kA100) == Condition::none);
  problem.window = 1025;
  CHECK(first_failed_condition(row, problem, kA100) == Condition::seqlen_q);
  const std::string text = explain_selection(kA100, problem, {&row, 1});
  INFO(text);
  CHECK(contains(text, "window of 1025 queries a key"));
  CHECK(contains(text, "seqlen_q must be 0 ... 1024, is 1025 in the window"));
}

TEST_CASE("selection allocates nothing and takes less than a microsecond") {
  constexpr int kCalls = 10000;
  ProblemSource source(3);
  std::vector<Problem> problems;
  for (int i = 0; i < kCalls; ++i) problems.push_back(source.next());
  double fastest = std::numeric_limits<double>::max();
  int chosen_rows = 0;
  const std::size_t allocated = allocations();
  for (int repeat = 0; repeat < 10; ++repeat) {
    const auto start = std::chrono::steady_clock::now();
    for (const Problem& problem : problems)
      chosen_rows += select_kernel(kH100, problem, generated_rows()).row != nullptr ? 1 : 0;
    const std::chrono::duration<double, std::nano> elapsed = std::chrono::steady_clock::now() - start;
    fastest = std::min(fastest, elapsed.count() / kCalls);
  }
  CHECK(allocations() == allocated);
  CHECK(chosen_rows == 10 * kCalls);
  std::printf("select_kernel: %.0f ns\n", fastest);
#if defined(NDEBUG) && !defined(__SANITIZE_ADDRESS__)
  CHECK(fastest < 1000);
#endif
}

TEST_CASE("many threads select what one does") {
  constexpr int kProblems = 2000;
  std::vector<Problem> problems;
  std::vector<const Row*> expected;
  ProblemSource source(4);
  for (int i = 0; i < kProblems; ++i) {
    problems.push_back(source.next());
    expected.push_back(select_kernel(kH100, problems.back(), generated_rows()).row);
  }
  std::atomic<int> differences{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      for (std::size_t i = 0; i < problems.size(); ++i)
        if (select_kernel(kH100, problems[i], generated_rows()).row != expected[i]) ++differences;
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(differences == 0);
}

}  // namespace flashdma_bwd::testing
