// Setting, freezing and asking through the C ABI, for GPUs that are not here.
#include <cuda_runtime_api.h>

#include <cstring>
#include <flashdma_bwd/flashdma_bwd.hpp>
#include <string>

#include "cache_samples.hpp"
#include "selection/architecture_chain.hpp"
#include "selection/configuration_name.hpp"
#include "support/catch.hpp"

namespace flashdma_bwd::testing {
namespace {

constexpr Device kDevice{90, 132, 232448};

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// Nothing is tuned any more when this goes.
struct TuningAtRest {
  TuningAtRest() = default;
  TuningAtRest(const TuningAtRest&) = delete;
  TuningAtRest& operator=(const TuningAtRest&) = delete;
  ~TuningAtRest() { static_cast<void>(set_tuning(Tuning())); }
};

Status set(flashdma_bwd_tune_mode mode, const char* cache, const char* hash = nullptr) {
  Tuning tuning;
  tuning.mode = mode;
  tuning.cache = cache;
  tuning.hash = hash;
  return set_tuning(tuning);
}

TuningState state() {
  TuningState now{};
  const Status status = get_tuning(now, &kDevice);
  INFO(status.message());
  REQUIRE(status.ok());
  return now;
}

}  // namespace

TEST_CASE("tuning is off unless it is set, and init says so") {
  flashdma_bwd_tuning tuning;
  std::memset(&tuning, 0xff, sizeof tuning);
  flashdma_bwd_tuning_init(&tuning);
  CHECK(tuning.struct_size == sizeof tuning);
  CHECK(tuning.mode == FLASHDMA_BWD_TUNE_OFF);
  CHECK(tuning.cache == nullptr);
  CHECK(tuning.hash == nullptr);
  CHECK(tuning.budget_ms == 0);
  CHECK(state().mode == FLASHDMA_BWD_TUNE_OFF);
  CHECK(state().choices == 0);
  CHECK(std::string(state().hash).empty());
  CHECK(freeze_tuning().ok());
}

TEST_CASE("what is set is what is asked for") {
  const TuningAtRest rest;
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  REQUIRE(set(FLASHDMA_BWD_TUNE_FIRST_USE, path.c_str()).ok());
  CHECK(state().mode == FLASHDMA_BWD_TUNE_FIRST_USE);
  CHECK(state().frozen == 0);
  CHECK(state().unsaved == 0);
  const std::string hash = state().hash;
  CHECK(hash.size() == 16);
  REQUIRE(freeze_tuning().ok());
  CHECK(state().frozen == 1);
  CHECK(state().hash == hash);
  CHECK_FALSE(std::filesystem::exists(path));

  write_text(path, "");
  REQUIRE(set(FLASHDMA_BWD_TUNE_READ_ONLY, path.c_str(), hash.c_str()).ok());
  CHECK(state().mode == FLASHDMA_BWD_TUNE_READ_ONLY);
  CHECK(state().frozen == 1);
  CHECK(state().hash == hash);
  REQUIRE(set(FLASHDMA_BWD_TUNE_OFF, nullptr).ok());
  CHECK(state().mode == FLASHDMA_BWD_TUNE_OFF);
  CHECK(state().frozen == 0);
}

TEST_CASE("what cannot be set changes nothing") {
  const TuningAtRest rest;
  const TemporaryFolder folder;
  REQUIRE(set(FLASHDMA_BWD_TUNE_FIRST_USE, nullptr).ok());
  const auto refused = [&](const Status& status, Code code, const std::string& reason) {
    INFO(status.message());
    CHECK(status.code() == code);
    CHECK(contains(status.message(), reason));
    CHECK(state().mode == FLASHDMA_BWD_TUNE_FIRST_USE);
  };
  refused(set(FLASHDMA_BWD_TUNE_READ_ONLY, nullptr), FLASHDMA_BWD_INVALID_ARGUMENT, "tuning.mode is read_only");
  refused(set(FLASHDMA_BWD_TUNE_FIRST_USE, "c", "x"), FLASHDMA_BWD_INVALID_ARGUMENT, "tuning.hash is `x`");
  refused(set(static_cast<flashdma_bwd_tune_mode>(3), "c"), FLASHDMA_BWD_INVALID_ARGUMENT, "tuning.mode is 3");
  refused(set(FLASHDMA_BWD_TUNE_READ_ONLY, folder.path("none").c_str()), FLASHDMA_BWD_OVERRIDE_ERROR,
          "none is not there");
  refused(set(FLASHDMA_BWD_TUNE_FIRST_USE, folder.path("").c_str()), FLASHDMA_BWD_OVERRIDE_ERROR, "is no regular file");
  write_text(folder.path("letter"), "Dear reader,\n");
  refused(set(FLASHDMA_BWD_TUNE_FIRST_USE, folder.path("letter").c_str()), FLASHDMA_BWD_OVERRIDE_ERROR, "is no cache");
  Tuning other;
  other.struct_size = 4;
  refused(set_tuning(other), FLASHDMA_BWD_INVALID_ARGUMENT, "tuning.struct_size is 4");
  CHECK(flashdma_bwd_set_tuning(nullptr) == FLASHDMA_BWD_INVALID_ARGUMENT);
}

TEST_CASE("the state is refused for a struct of another size and for a device that cannot be") {
  TuningState now{};
  CHECK(flashdma_bwd_get_tuning(&kDevice, nullptr) == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(flashdma_bwd_get_tuning(&kDevice, &now) == FLASHDMA_BWD_INVALID_ARGUMENT);
  CHECK(contains(flashdma_bwd_last_message(), "state.struct_size is 0"));
  const Device none{90, 0, 232448};
  CHECK(contains(get_tuning(now, &none).message(), "device.sm_count is 0"));
}

TEST_CASE("what this build was made with decides which records are its own") {
  const TuningAtRest rest;
  const TemporaryFolder folder;
  const std::string path = folder.path("cache.jsonl");
  const auto names = kernels();
  // A record of each kernel that an H100 runs, in this library's environment but for the toolkit, which is tried.
  const auto choices_with = [&](const std::string& toolkit, const std::string& hash) {
    std::string text;
    std::int64_t batch = 0;
    for (const std::string_view name : names) {
      const KernelConfig config = *parse_configuration_name(name).value;
      CacheRecord record = sample_record(ordinary_problem());
      record.environment.toolkit = toolkit;
      record.environment.table_hash = hash;
      record.problem.batch = ++batch;
      record.problem.head_dim = config.head_dim;
      record.problem.data_type = config.data_type;
      record.problem.bias = config.bias;
      record.problem.bias_copies = config.bias == BiasKind::tile;
      record.problem.softcap = config.softcap;
      record.kernel = name;
      record.runner_up.clear();
      text += record_text(record) + '\n';
    }
    write_text(path, text);
    REQUIRE(set(FLASHDMA_BWD_TUNE_READ_ONLY, path.c_str()).ok());
    return state().choices;
  };
  std::int64_t runnable = 0;
  for (const std::string_view name : names)
    runnable += code_form(parse_configuration_name(name).value->architecture, 90).has_value() ? 1 : 0;
  const std::string toolkit = std::to_string(CUDART_VERSION / 1000) + '.' + std::to_string(CUDART_VERSION % 1000 / 10);
  CHECK(choices_with(toolkit, flashdma_bwd_table_hash()) == runnable);
  CHECK(choices_with(toolkit, "0000000000000000") == 0);
  CHECK(choices_with("1.0", flashdma_bwd_table_hash()) == 0);
}

}  // namespace flashdma_bwd::testing
