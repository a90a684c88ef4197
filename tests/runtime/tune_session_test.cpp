// The cache in a choice: modes, the file, freezing, deterministic problems, overrides and the workspace's size, in a
// build that pretends to have kernels and on a timer that pretends to measure.
#include "tune_cache/tune_session.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <set>
#include <thread>

#include "allocations.hpp"
#include "cache_samples.hpp"
#include "fake_timer.hpp"
#include "selection/configuration_name.hpp"
#include "support/catch.hpp"
#include "tune_cache/cache_choice.hpp"
#include "tune_cache/usable_record.hpp"
#include "workspace_query.hpp"

namespace flashdma_bwd::testing {
namespace {

const Environment kNothing{};
constexpr double kPlenty = 1e9;

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// A session of the pretended build, and what it warned of.
struct Learning {
  explicit Learning(TuneMode mode, const std::string& cache = "", const std::string& hash = "",
                    const std::string& toolkit = "13.0")
      : session({mode, cache, kPlenty, hash}, build().table(), toolkit,
                [this](const std::string& text) { warnings.push_back(text); }) {}

  static const PretendedBuild& build() {
    static const PretendedBuild everything;
    return everything;
  }
  Resolution choice(const Request& request, const Environment& environment = kNothing) {
    Resolution resolution;
    const Check failure = choose_kernel(build().table(), environment, &session, request, resolution);
    INFO((failure ? failure->message : ""));
    REQUIRE_FALSE(failure);
    return resolution;
  }
  std::string refusal(const Request& request) {
    Resolution resolution;
    const Check failure = choose_kernel(build().table(), kNothing, &session, request, resolution);
    if (!failure) return {};
    CHECK(contains(explain_choice(build().table(), kNothing, &session, request), failure->message));
    CHECK(failure->code == FLASHDMA_BWD_OVERRIDE_ERROR);
    return failure->message;
  }
  /// As a backward does.
  void measure(const Request& request, FakeTimer& timer) {
    const Resolution resolution = choice(request);
    if (resolution.cache != CacheAnswer::unknown || !session.measures()) return;
    const std::vector<Candidate> candidates = candidates_for(build().table(), request, resolution);
    const Check failure = session.measure(session.choices_for(request.device), request.problem, candidates, timer);
    INFO((failure ? failure->message : ""));
    REQUIRE_FALSE(failure);
  }
  std::string hash(const DeviceTraits& device = kH100) { return TuneSession::hash_text(session.choices_for(device)); }

  std::vector<std::string> warnings;
  TuneSession session;
};

Request request_for_batch(std::int64_t batch, const DeviceTraits& device = kH100) {
  return {problem_of_batch(batch), device, {}, false};
}

/// A timer in which the last of the candidates is the fastest, and its name.
struct Upset {
  explicit Upset(const Request& request) {
    Resolution resolution;
    REQUIRE_FALSE(resolve(Learning::build().table(), kNothing, request, resolution));
    const auto candidates = candidates_for(Learning::build().table(), request, resolution);
    REQUIRE(candidates.size() > 1);
    name = candidates.back().kernel->name;
    by_table = candidates.front().kernel->name;
    timer.fixed_ms[name] = 5;
  }
  std::string name, by_table;
  FakeTimer timer;
};

/// An environment in which one variable is set.
struct Variable {
  Variable(std::string_view name, const std::string& value) {
    read_environment(
        environment, [&](const char* asked) { return name == asked ? value.c_str() : nullptr; }, generated_rows());
    REQUIRE(environment.error.empty());
  }
  Environment environment;
};

}  // namespace

TEST_CASE("the first use measures, and the fastest runs from then on") {
  Learning learning(TuneMode::first_use);
  const Request request = request_for_batch(2);
  Upset upset(request);
  CHECK(learning.choice(request).cache == CacheAnswer::unknown);
  CHECK(learning.choice(request).kernel->name == upset.by_table);
  learning.measure(request, upset.timer);
  const int runs = upset.timer.all_runs();
  CHECK(runs > 10);
  const Resolution chosen = learning.choice(request);
  CHECK(chosen.decision == Decision::cache);
  CHECK(chosen.cache == CacheAnswer::chosen);
  CHECK(chosen.kernel->name == upset.name);
  CHECK(chosen.config == chosen.kernel->config);
  CHECK(chosen.row == nullptr);
  CHECK(decider_text(chosen) == "first use");
  learning.measure(request, upset.timer);
  CHECK(upset.timer.all_runs() == runs);
  // Another problem, or GPU, knows nothing of it.
  CHECK(learning.choice(request_for_batch(3)).cache == CacheAnswer::unknown);
  CHECK(learning.choice(request_for_batch(2, kA100)).cache == CacheAnswer::unknown);
  CHECK(learning.warnings.empty());
}

// Of two threads that use a problem first, one may measure with more workspace than the other has.
TEST_CASE("a choice that came meanwhile is not taken where it does not fit") {
  for (const bool fits : {false, true}) {
    Learning learning(TuneMode::first_use);
    const Request request = request_for_batch(2);
    Upset upset(request);
    Resolution resolution = learning.choice(request);
    learning.measure(request, upset.timer);
    REQUIRE(learning.choice(request).kernel->name == upset.name);
    std::string asked;
    const Check failure = ask_cache_again(
        &learning.session, kNothing, request,
        [&](const KernelConfig& config) {
          asked = configuration_name(config);
          return fits;
        },
        resolution);
    CHECK_FALSE(failure);
    CHECK(asked == upset.name);
    CHECK(resolution.kernel->name == (fits ? upset.name : upset.by_table));
    CHECK(configuration_name(resolution.config) == resolution.kernel->name);
    CHECK((resolution.decision == Decision::cache) == fits);
  }
}

TEST_CASE("without a session nothing is asked") {
  Resolution resolution;
  const Request request = request_for_batch(2);
  const DispatchTable& table = Learning::build().table();
  REQUIRE_FALSE(choose_kernel(table, kNothing, nullptr, request, resolution));
  CHECK(resolution.decision == Decision::table);
  CHECK(resolution.cache == CacheAnswer::not_asked);
  CHECK(explain_choice(table, kNothing, nullptr, request) == explain_resolution(table, kNothing, request));
}

TEST_CASE("what was measured is in the file, and another process chooses by it") {
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  const Request request = request_for_batch(2);
  Upset upset(request);
  Learning first(TuneMode::first_use, path);
  Upset other(request_for_batch(7));
  first.measure(request_for_batch(7), other.timer);
  first.measure(request, upset.timer);
  CHECK(decider_text(first.choice(request)) == path + ":2");

  const auto lines = read_cache(path);
  REQUIRE(lines);
  REQUIRE(lines.value->size() == 2);
  const CacheRecord& record = lines.value->back().record;
  CHECK(record.environment == sample_environment());
  CHECK(record.problem == request.problem);
  CHECK(record.kernel == upset.name);
  CHECK(record.ms == 5);
  CHECK_FALSE(record.runner_up.empty());
  CHECK(record.runner_up_ms == 10);
  CHECK(record.measured == record.feasible);

  for (const TuneMode mode : {TuneMode::first_use, TuneMode::read_only}) {
    Learning second(mode, path);
    const Resolution chosen = second.choice(request);
    CHECK(chosen.kernel->name == upset.name);
    CHECK(decider_text(chosen) == path + ":2");
    CHECK(second.hash() == first.hash());
    second.session.tell_ignored(second.session.choices_for(kH100));
    CHECK(second.warnings.empty());
  }
}

TEST_CASE("read only measures nothing and writes nothing") {
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  const std::string line = record_text(sample_record(problem_of_batch(1))) + '\n';
  write_text(path, line);
  Learning learning(TuneMode::read_only, path);
  CHECK(learning.session.frozen());
  CHECK_FALSE(learning.session.measures());
  FakeTimer timer;
  const Request request = request_for_batch(2);
  learning.measure(request, timer);
  DeviceChoices& choices = learning.session.choices_for(kH100);
  REQUIRE_FALSE(learning.session.measure(choices, request.problem, {}, timer));
  CHECK(timer.all_runs() == 0);
  CHECK(learning.choice(request).cache == CacheAnswer::unknown);
  CHECK(learning.choice(request_for_batch(1)).cache == CacheAnswer::chosen);
  CHECK(read_text(path) == line);
  CHECK_FALSE(std::filesystem::exists(path + ".lock"));
}

TEST_CASE("a cache that cannot be read is an error of every call that asks it") {
  const TemporaryFolder folder;
  const Request request = request_for_batch(2);
  CHECK(contains(Learning(TuneMode::read_only, folder.path("none")).refusal(request), "none is not there"));
  CHECK(contains(Learning(TuneMode::first_use, folder.path("")).refusal(request), "is no regular file"));
  write_text(folder.path("letter"), "Dear reader,\n");
  CHECK(contains(Learning(TuneMode::first_use, folder.path("letter")).refusal(request), "is no cache"));
  CHECK(Learning(TuneMode::first_use, folder.path("none")).refusal(request).empty());
  Request table_only = request;
  table_only.table_only = true;
  CHECK(Learning(TuneMode::read_only, folder.path("none")).refusal(table_only).empty());
}

TEST_CASE("lines that cannot be used are told of once, by file and line, and stay") {
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  std::string text;
  const auto add = [&](std::int64_t batch, const std::function<void(CacheRecord&)>& change) {
    CacheRecord record = sample_record(problem_of_batch(batch));
    change(record);
    text += record_text(record) + '\n';
  };
  add(1, [](CacheRecord&) {});
  add(2, [](CacheRecord& record) { record.environment.sm_count = 114; });
  add(3, [](CacheRecord& record) { record.environment.compute_capability = 80; });
  add(4, [](CacheRecord& record) { record.environment.table_hash = "fedcba9876543210"; });
  add(5, [](CacheRecord& record) { record.environment.toolkit = "12.5"; });
  add(6, [](CacheRecord& record) { record.kernel = "bwd_sm90_d128_bf16_ampere_m32n32_w4_s2_kv2_dq2_q1_do1_nobias"; });
  text += "{\"version\":7}\n{\"damaged\":\n";
  write_text(path, text);
  Learning learning(TuneMode::first_use, path);
  DeviceChoices& choices = learning.session.choices_for(kH100);
  CHECK(choices.table.size() == 1);
  for (int i = 0; i < 3; ++i) learning.session.tell_ignored(choices);
  learning.session.tell_ignored(learning.session.choices_for(kA100));
  REQUIRE(learning.warnings.size() == 1);
  INFO(learning.warnings[0]);
  CHECK(learning.warnings[0].find(path + ":2: ignored: measured on compute capability 9.0 with 114 multiprocessors") ==
        0);
  CHECK(contains(learning.warnings[0],
                 "Of 8 lines 7 are ignored (1 damaged, 1 of another version, 2 of other tables "
                 "or another toolkit, 2 of another GPU, 1 of kernels that cannot run here)"));
  for (std::int64_t batch = 2; batch <= 6; ++batch)
    CHECK(learning.choice(request_for_batch(batch)).cache == CacheAnswer::unknown);
  // What is measured in their place is used, now and by the next process.
  Upset upset(request_for_batch(6));
  learning.measure(request_for_batch(6), upset.timer);
  CHECK(read_text(path).find(text) == 0);
  CHECK(decider_text(Learning(TuneMode::read_only, path).choice(request_for_batch(6))) == path + ":9");
}

TEST_CASE("each kind of line that cannot be used says why") {
  const DispatchTable& table = Learning::build().table();
  const auto why = [&](const std::function<void(CacheLine&)>& change, Usability expected) {
    CacheLine line{1, LineKind::record, sample_record(ordinary_problem()), {}};
    change(line);
    const Usable usable = usable_record(line, table, sample_environment(), kH100);
    CHECK(usable.usability == expected);
    return usable.why;
  };
  CHECK(why([](CacheLine&) {}, Usability::usable).empty());
  CHECK(contains(why([](CacheLine& l) { l.record.environment.table_hash = "fedcba9876543210"; }, Usability::stale),
                 "measured with the tables fedcba9876543210, and this library has 0123456789abcdef"));
  CHECK(contains(why([](CacheLine& l) { l.record.environment.toolkit = "12.5"; }, Usability::stale), "CUDA 12.5"));
  CHECK(contains(why([](CacheLine& l) { l.record.environment.sm_count = 78; }, Usability::foreign),
                 "with 78 multiprocessors"));
  CHECK(contains(why([](CacheLine& l) { l.record.kernel = "bwd_sm90_d128_bf16_x_nobias"; }, Usability::not_runnable),
                 "is not in this build"));
  CHECK(contains(why([](CacheLine& l) { l.record.problem.head_dim = 64; }, Usability::not_runnable),
                 "cannot run the problem: "));
  const DeviceTraits little{90, 132, 1024};
  const Usable usable =
      usable_record({1, LineKind::record, sample_record(ordinary_problem()), {}}, table, sample_environment(), little);
  CHECK(usable.usability == Usability::not_runnable);
  CHECK(contains(usable.why, "bytes of shared memory"));
}

TEST_CASE("where the file cannot be written the choices stay in memory until it can") {
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  std::filesystem::create_directory(path + ".tmp");
  Learning learning(TuneMode::first_use, path);
  for (std::int64_t batch : {1, 2}) {
    Upset upset(request_for_batch(batch));
    learning.measure(request_for_batch(batch), upset.timer);
    CHECK(learning.choice(request_for_batch(batch)).kernel->name == upset.name);
    CHECK(decider_text(learning.choice(request_for_batch(batch))) == "first use");
  }
  REQUIRE(learning.warnings.size() == 1);
  CHECK(contains(learning.warnings[0], "cache.jsonl.tmp cannot be created: Is a directory"));
  CHECK(learning.session.unsaved() == 2);
  std::filesystem::remove(path + ".tmp");
  Upset upset(request_for_batch(3));
  learning.measure(request_for_batch(3), upset.timer);
  CHECK(learning.session.unsaved() == 0);
  CHECK(read_cache(path).value->size() == 3);
  CHECK(decider_text(learning.choice(request_for_batch(1))) == path + ":1");
  CHECK(learning.warnings.size() == 1);
}

TEST_CASE("freezing saves what is unsaved, and nothing is measured from then on") {
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  std::filesystem::create_directory(path + ".tmp");
  Learning learning(TuneMode::first_use, path);
  Upset upset(request_for_batch(1));
  learning.measure(request_for_batch(1), upset.timer);
  CHECK(learning.session.unsaved() == 1);
  std::filesystem::remove(path + ".tmp");
  learning.session.freeze();
  CHECK(learning.session.frozen());
  CHECK(learning.session.unsaved() == 0);
  CHECK(read_cache(path).value->size() == 1);
  const std::string hash = learning.hash();
  FakeTimer timer;
  learning.measure(request_for_batch(2), timer);
  DeviceChoices& choices = learning.session.choices_for(kH100);
  REQUIRE_FALSE(learning.session.measure(choices, problem_of_batch(2), {}, timer));
  CHECK(timer.all_runs() == 0);
  CHECK(learning.hash() == hash);
  CHECK(learning.choice(request_for_batch(1)).cache == CacheAnswer::chosen);
}

TEST_CASE("the hash is of the choices, not of their order, times or dates, and not of what is ignored") {
  const TemporaryFolder folder;
  const auto hash_of = [&](const std::vector<CacheRecord>& records, const DeviceTraits& device = kH100) {
    std::string text;
    for (const CacheRecord& record : records) text += record_text(record) + '\n';
    write_text(folder.path("cache.jsonl"), text);
    return Learning(TuneMode::read_only, folder.path("cache.jsonl")).hash(device);
  };
  const CacheRecord one = sample_record(problem_of_batch(1));
  const CacheRecord two = sample_record(problem_of_batch(2));
  const std::string hash = hash_of({one, two});
  CHECK(hash.size() == 16);
  CHECK(hash.find_first_not_of("0123456789abcdef") == std::string::npos);
  CHECK(hash_of({two, one}) == hash);
  CacheRecord later = one;
  later.ms = 9;
  later.date = "2027-01-01T00:00:00Z";
  CHECK(hash_of({later, two}) == hash);
  CacheRecord foreign = sample_record(problem_of_batch(3));
  foreign.environment.sm_count = 10;
  CHECK(hash_of({foreign, one, two}) == hash);
  CHECK(hash_of({one, two, later}) == hash);  // the first line of a problem counts
  CHECK(hash_of({one}) != hash);
  CHECK(hash_of({}) != hash);
  CHECK(hash_of({}) != hash_of({}, kA100));
  std::set<std::string> seen;
  for (std::int64_t batch = 1; batch <= 200; ++batch)
    CHECK(seen.insert(hash_of({sample_record(problem_of_batch(batch))})).second);
}

TEST_CASE("another kernel for a problem is another hash") {
  ChoiceTable one, other;
  const auto kernels = Learning::build().table().kernels;
  one.add(sample_record(ordinary_problem()), kernels[0], CodeForm::native, 0);
  other.add(sample_record(ordinary_problem()), kernels[1], CodeForm::native, 0);
  CHECK(one.hash() != other.hash());
}

TEST_CASE("a deterministic problem is measured, but only a cache of the given hash may choose for it") {
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  Request request = request_for_batch(2);
  request.problem.deterministic = true;
  Upset upset(request);
  Learning learning(TuneMode::first_use, path);
  learning.measure(request, upset.timer);
  CHECK(upset.timer.all_runs() > 0);
  CHECK(learning.choice(request).cache == CacheAnswer::withheld);
  CHECK(learning.choice(request).decision == Decision::table);
  CHECK(learning.choice(request).kernel->name == upset.by_table);
  const int runs = upset.timer.all_runs();
  learning.measure(request, upset.timer);
  CHECK(upset.timer.all_runs() == runs);
  learning.session.freeze();
  CHECK(learning.choice(request).cache == CacheAnswer::withheld);
  CHECK(Learning(TuneMode::read_only, path).choice(request).cache == CacheAnswer::withheld);

  const std::string hash = learning.hash();
  for (const TuneMode mode : {TuneMode::first_use, TuneMode::read_only}) {
    Learning pinned(mode, path, hash);
    CHECK(pinned.session.frozen());
    CHECK(pinned.choice(request).cache == CacheAnswer::chosen);
    CHECK(pinned.choice(request).kernel->name == upset.name);
  }
  // Another process adds a choice: the hash is another, and every call is told so.
  const CacheRecord more = sample_record(problem_of_batch(9));
  REQUIRE(append_to_cache(path, {&more, 1}));
  Learning pinned(TuneMode::read_only, path, hash);
  const std::string refusal = pinned.refusal(request);
  CHECK(contains(refusal, "has hash " + pinned.hash()));
  CHECK(contains(refusal, hash + " was asked for"));
  CHECK_FALSE(pinned.refusal(request_for_batch(50)).empty());
}

TEST_CASE("overrides go before the cache") {
  Learning learning(TuneMode::first_use);
  const Request request = request_for_batch(2);
  Upset upset(request);
  learning.measure(request, upset.timer);
  REQUIRE(learning.choice(request).kernel->name == upset.name);

  Request named = request;
  named.kernel = upset.by_table;
  CHECK(learning.choice(named).decision == Decision::argument);
  Request table_only = request;
  table_only.table_only = true;
  CHECK(learning.choice(table_only).decision == Decision::table);
  CHECK(learning.choice(table_only).cache == CacheAnswer::not_asked);
  const Variable kernel("FLASHDMA_BWD_KERNEL", upset.by_table);
  CHECK(learning.choice(request, kernel.environment).decision == Decision::environment_kernel);
  const Variable architecture("FLASHDMA_BWD_ARCH", "sm90");
  CHECK(learning.choice(request, architecture.environment).decision == Decision::environment_architecture);

  const TemporaryFolder folder;
  const std::string tile = tile_name(learning.choice(table_only).config.tile);
  write_text(folder.path("rows"),
             "flashdma_bwd table 1\nsm90 head_dim=128 seqlen_q=4096..4096 => " + tile + " ; derived: a test\n");
  const Variable rows("FLASHDMA_BWD_TABLE", folder.path("rows"));
  const Resolution by_row = learning.choice(request, rows.environment);
  CHECK(by_row.decision == Decision::table);
  CHECK(by_row.row->line == 2);
  CHECK(by_row.cache == CacheAnswer::not_asked);
  // A problem that falls through to the built-in rows.
  Request longer = request;
  longer.problem.seqlen_q = 8192;
  Upset other(longer);
  learning.measure(longer, other.timer);
  CHECK(learning.choice(longer, rows.environment).kernel->name == other.name);
}

TEST_CASE("work that is cut for tests is not measured") {
  Learning learning(TuneMode::first_use);
  Environment pieces;
  pieces.piece_steps = 1;
  Resolution resolution;
  const Request request = request_for_batch(2);
  REQUIRE_FALSE(resolve(Learning::build().table(), pieces, request, resolution));
  const Check failure = ask_cache(&learning.session, pieces, request, resolution);
  REQUIRE(failure);
  CHECK(failure->code == FLASHDMA_BWD_OVERRIDE_ERROR);
  CHECK(contains(failure->message, "FLASHDMA_BWD_PIECE_STEPS"));
}

TEST_CASE("a call without pairs is not measured") {
  Learning learning(TuneMode::first_use);
  Request request = request_for_batch(2);
  request.problem.seqlen_q = 0;
  CHECK(learning.choice(request).cache == CacheAnswer::not_asked);
}

TEST_CASE("while one thread measures another does not wait and runs the table's choice") {
  Learning learning(TuneMode::first_use);
  const Request request = request_for_batch(2);
  Upset upset(request);
  FakeTimer idle;
  bool tried = false;
  upset.timer.before_run = [&] {
    if (std::exchange(tried, true)) return;
    std::thread([&] {
      DeviceChoices& choices = learning.session.choices_for(kH100);
      const Candidate none[] = {Candidate()};
      if (learning.session.measure(choices, request.problem, none, idle)) idle.order.push_back("failed");
    }).join();
  };
  learning.measure(request, upset.timer);
  CHECK(tried);
  CHECK(idle.all_runs() == 0);
  CHECK(learning.choice(request).kernel->name == upset.name);
}

TEST_CASE("freezing does not wait for a measurement, and drops it") {
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  Learning learning(TuneMode::first_use, path);
  const Request request = request_for_batch(2);
  Upset upset(request);
  upset.timer.before_run = [&] {
    if (!learning.session.frozen()) std::thread([&] { learning.session.freeze(); }).join();
  };
  learning.measure(request, upset.timer);
  CHECK(learning.session.frozen());
  CHECK(learning.choice(request).cache == CacheAnswer::unknown);
  CHECK_FALSE(std::filesystem::exists(path));
}

TEST_CASE("a look-up allocates nothing, whatever its answer") {
  Learning learning(TuneMode::first_use);
  const Request request = request_for_batch(2);
  Upset upset(request);
  learning.measure(request, upset.timer);
  Request deterministic = request;
  deterministic.problem.deterministic = true;
  for (const Request& asked : {request, request_for_batch(3), deterministic}) {
    Resolution resolution;
    REQUIRE_FALSE(resolve(Learning::build().table(), kNothing, asked, resolution));
    const std::size_t allocated = allocations();
    const Check failure = ask_cache(&learning.session, kNothing, asked, resolution);
    CHECK(allocations() == allocated);
    CHECK_FALSE(failure);
  }
}

TEST_CASE("threads read while one adds") {
  ChoiceTable table;
  constexpr std::int64_t kChoices = 5000;
  const auto kernels = Learning::build().table().kernels;
  const CacheRecord sample = sample_record(ordinary_problem());
  std::atomic<std::int64_t> added{0};
  std::atomic<int> wrong{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < 3; ++reader)
    readers.emplace_back([&] {
      for (std::int64_t sure = 0; sure < kChoices;) {
        sure = added.load();
        for (std::int64_t batch = 1; batch <= sure + 2; batch += 37) {
          const TunedChoice* found = table.find(problem_of_batch(batch));
          if (batch <= sure && found == nullptr) ++wrong;
          if (found != nullptr && (found->record.problem.batch != batch ||
                                   found->kernel != &kernels[static_cast<std::size_t>(batch) % kernels.size()]))
            ++wrong;
        }
      }
    });
  for (std::int64_t batch = 1; batch <= kChoices; ++batch) {
    CacheRecord record = sample;
    record.problem.batch = batch;
    table.add(record, kernels[static_cast<std::size_t>(batch) % kernels.size()], CodeForm::native, 0);
    added = batch;
  }
  for (std::thread& reader : readers) reader.join();
  CHECK(wrong == 0);
  CHECK(table.size() == kChoices);
}

TEST_CASE("eight processes learn at once and lose nothing") {
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  std::vector<pid_t> children;
  for (int process = 0; process < 8; ++process) {
    const pid_t child = fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      Learning learning(TuneMode::first_use, path);
      for (int i = 0; i < 5; ++i) {
        // One problem of its own and one of all.
        for (const std::int64_t batch : {1 + process * 5 + i, 1000 + i}) {
          FakeTimer timer;
          learning.measure(request_for_batch(batch), timer);
        }
      }
      _exit(learning.warnings.empty() && learning.session.unsaved() == 0 ? 0 : 1);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    REQUIRE(waitpid(child, &status, 0) == child);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
  }
  Learning reader(TuneMode::read_only, path);
  CHECK(reader.session.choices_for(kH100).table.size() == 45);
  CHECK(read_cache(path).value->size() == 45);
}

TEST_CASE("explanations say what the cache has") {
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  Learning learning(TuneMode::first_use, path);
  const Request request = request_for_batch(2);
  const auto text = [&](const Request& asked) {
    const std::string without = explain_resolution(Learning::build().table(), kNothing, asked);
    const std::string whole = explain_choice(Learning::build().table(), kNothing, &learning.session, asked);
    REQUIRE(whole.ends_with(without));
    return whole.substr(0, whole.size() - without.size());
  };
  CHECK(text(request) ==
        path + " has no choice for this problem on this GPU: the next backward that is not captured measures it\n");
  Upset upset(request);
  learning.measure(request, upset.timer);
  INFO(text(request));
  CHECK(text(request).find(path + ":1 decides: " + upset.name + " took 5 ms (spread 0 ms) on 2") == 0);
  CHECK(contains(text(request), "\nkernel: " + upset.name + "\nwithout the cache:\n"));
  Request table_only = request;
  table_only.table_only = true;
  CHECK(contains(text(table_only), "not asked: the call wants the table only"));
  Request named = request;
  named.kernel = upset.by_table;
  CHECK(contains(text(named), "not asked: an override goes before it"));
  Request deterministic = request;
  deterministic.problem.deterministic = true;
  learning.measure(deterministic, upset.timer);
  CHECK(contains(text(deterministic), "has a choice for this problem, which is deterministic"));
  learning.session.freeze();
  CHECK(contains(text(request_for_batch(3)), "has no choice for this problem on this GPU, the table decides"));
}

TEST_CASE("what a capture could not measure is told once") {
  Learning learning(TuneMode::first_use);
  for (std::int64_t batch : {1, 2, 2}) learning.session.tell_capture(problem_of_batch(batch));
  REQUIRE(learning.warnings.size() == 1);
  CHECK(contains(learning.warnings[0], "b=1 "));
}

TEST_CASE("the workspace is enough for whatever may be chosen") {
  // Every configuration needs another size: the place of its name in the list.
  const auto kernels = Learning::build().table().kernels;
  const auto bytes_of = [&](const KernelConfig& config) {
    return static_cast<std::size_t>(find_kernel(kernels, config) - kernels.data()) + 1;
  };
  const auto asked = [&](TuneSession* session, const Request& request, bool may_copy) {
    std::size_t bytes = 0;
    REQUIRE_FALSE(largest_workspace(Learning::build().table(), kNothing, session, request, may_copy, bytes_of, bytes));
    return bytes;
  };
  ProblemSource source(41);
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  Learning learning(TuneMode::first_use, path);
  std::vector<Request> requests;
  int larger = 0;
  for (int i = 0; i < 60; ++i) {
    Request request{source.next(), kH100, {}, false};
    const bool may_copy = request.problem.bias_copies;
    const std::size_t by_table = asked(nullptr, request, may_copy);
    const std::size_t largest = asked(&learning.session, request, may_copy);
    CHECK(largest >= by_table);
    larger += largest > by_table ? 1 : 0;
    Resolution resolution = learning.choice(request);
    for (const Candidate& candidate : candidates_for(Learning::build().table(), request, resolution))
      CHECK(bytes_of(candidate.kernel->config) <= largest);
    FakeTimer timer;
    timer.ms_of = [&](const std::string&, int) { return static_cast<double>(5 + source.below(10)); };
    learning.measure(request, timer);
    resolution = learning.choice(request);
    if (!may_copy) CHECK(asked(&learning.session, request, may_copy) == bytes_of(resolution.config));
    requests.push_back(request);
  }
  CHECK(larger > 10);
  Learning reader(TuneMode::read_only, path);
  for (const Request& request : requests) {
    const Resolution resolution = reader.choice(request);
    const std::size_t bytes = asked(&reader.session, request, request.problem.bias_copies);
    if (!request.problem.bias_copies) CHECK(bytes == bytes_of(resolution.config));
    CHECK(bytes >= bytes_of(resolution.config));
  }
}

}  // namespace flashdma_bwd::testing
