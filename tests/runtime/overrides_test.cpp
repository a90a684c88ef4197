// Overrides, of the arguments and of the environment, in a build that pretends to have kernels.
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>

#include "environment.hpp"
#include "resolve.hpp"
#include "selection/configuration_name.hpp"
#include "selection/vocabulary.hpp"
#include "support/catch.hpp"
#include "tables.hpp"

namespace flashdma_bwd::testing {
namespace {

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

using Values = std::map<std::string, std::string>;

/// An environment with these variables.
struct Variables {
  explicit Variables(const Values& values) {
    read_environment(
        environment, [&](const char* name) { return values.count(name) != 0 ? values.at(name).c_str() : nullptr; },
        generated_rows());
  }
  Environment environment;
};

/// A file that lives as long as this.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text) { std::ofstream(path_) << text; }
  ~TemporaryFile() { std::remove(path_.c_str()); }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_ = "overrides_test_table.txt";
};

Request request_on(const DeviceTraits& device) {
  return {ordinary_problem(), device, {}, false};
}

struct Outcome {
  Check failure;
  Resolution resolution;
  std::string explanation;

  std::string message() const { return failure ? failure->message : ""; }
  bool is(flashdma_bwd_code code) const { return (failure ? failure->code : FLASHDMA_BWD_OK) == code; }
};
Outcome resolved(const DispatchTable& table, const Environment& environment, const Request& request) {
  Outcome outcome;
  outcome.failure = resolve(table, environment, request, outcome.resolution);
  outcome.explanation = explain_resolution(table, environment, request);
  return outcome;
}
/// An override that cannot be honoured: an error with this part of a reason, which explain repeats.
void check_refused(const Outcome& outcome, const std::string& reason) {
  INFO(outcome.message() << '\n' << outcome.explanation);
  CHECK(outcome.is(FLASHDMA_BWD_OVERRIDE_ERROR));
  CHECK(contains(outcome.message(), reason));
  CHECK(contains(outcome.explanation, reason));
}

const Environment kNothing{};

/// What `row_architecture`'s table gives the ordinary problem.
std::string name_for(Architecture architecture, const Problem& problem = ordinary_problem()) {
  const SelectionResult result = select_among(architecture, kH100, problem, generated_rows());
  REQUIRE(result.status == SelectionStatus::ok);
  return configuration_name(result.config);
}

}  // namespace

TEST_CASE("without overrides the table decides and the kernel is found") {
  const PretendedBuild build;
  ProblemSource source(5);
  for (const DeviceTraits& device : {kA100, kRtx3090, kRtx4090, kH100})
    for (int i = 0; i < 500; ++i) {
      Request request = request_on(device);
      request.problem = source.next();
      const Outcome outcome = resolved(build.table(), kNothing, request);
      INFO(outcome.message());
      REQUIRE(outcome.is(FLASHDMA_BWD_OK));
      REQUIRE(outcome.resolution.decision == Decision::table);
      REQUIRE(outcome.resolution.kernel != nullptr);
      REQUIRE(outcome.resolution.kernel->config == outcome.resolution.config);
      REQUIRE(outcome.resolution.kernel->name == configuration_name(outcome.resolution.config));
      REQUIRE(contains(outcome.explanation, std::string(outcome.resolution.kernel->name)));
    }
}

TEST_CASE("kernels are found by name, and only those that exist") {
  const PretendedBuild build;
  const auto kernels = build.table().kernels;
  for (const KernelEntry& kernel : kernels) REQUIRE(find_kernel(kernels, kernel.name) == &kernel);
  CHECK(find_kernel(kernels, "") == nullptr);
  CHECK(find_kernel(kernels, "bwd") == nullptr);
  CHECK(find_kernel(kernels, "zzz") == nullptr);
  CHECK(find_kernel({}, kernels[0].name) == nullptr);
}

TEST_CASE("a row whose kernel the profile leaves out is not compiled, and the profile is named") {
  const PretendedBuild build({}, "fp16");
  const Outcome outcome = resolved(build.table(), kNothing, request_on(kA100));
  INFO(outcome.message());
  CHECK(outcome.is(FLASHDMA_BWD_NOT_COMPILED));
  CHECK(contains(outcome.message(), name_for(Architecture::sm80)));
  CHECK(contains(outcome.message(), "profile `pretended`"));
  CHECK(contains(outcome.message(), "profile `full` has it"));
  CHECK(contains(outcome.explanation, "profile `pretended`"));
}

TEST_CASE("a kernel named in the arguments runs, also where the environment names another") {
  const PretendedBuild build;
  const std::string name = name_for(Architecture::sm80);
  Request request = request_on(kH100);
  request.kernel = name;
  for (const auto& values : {Values{}, {{"FLASHDMA_BWD_KERNEL", name_for(Architecture::sm90)}}}) {
    const Variables variables(values);
    const Outcome outcome = resolved(build.table(), variables.environment, request);
    INFO(outcome.message());
    REQUIRE(outcome.is(FLASHDMA_BWD_OK));
    CHECK(outcome.resolution.decision == Decision::argument);
    CHECK(outcome.resolution.kernel->name == name);
    CHECK(outcome.resolution.row == nullptr);
    CHECK(outcome.resolution.form == CodeForm::ptx);
    CHECK(contains(outcome.explanation, "kernel: " + name));
  }
}

TEST_CASE("FLASHDMA_BWD_KERNEL decides, unless the call allows the table only") {
  const PretendedBuild build;
  const Variables variables(Values{{"FLASHDMA_BWD_KERNEL", name_for(Architecture::sm80)}});
  Request request = request_on(kRtx4090);
  request.device.shared_memory_per_block = kA100.shared_memory_per_block;
  Outcome outcome = resolved(build.table(), variables.environment, request);
  REQUIRE(outcome.is(FLASHDMA_BWD_OK));
  CHECK(outcome.resolution.decision == Decision::environment_kernel);
  CHECK(outcome.resolution.kernel->config.architecture == Architecture::sm80);
  request.table_only = true;
  outcome = resolved(build.table(), variables.environment, request);
  REQUIRE(outcome.is(FLASHDMA_BWD_OK));
  CHECK(outcome.resolution.decision == Decision::table);
  CHECK(outcome.resolution.kernel->config.architecture == Architecture::sm89);
}

TEST_CASE("a named kernel that cannot run the problem is an error with the reason") {
  const PretendedBuild build;
  const std::string name = name_for(Architecture::sm80);
  const auto with_problem = [&](auto change, const char* reason) {
    Request request = request_on(kA100);
    change(request.problem);
    request.kernel = name;
    check_refused(resolved(build.table(), kNothing, request), reason);
    const Variables variables(Values{{"FLASHDMA_BWD_KERNEL", name}});
    request.kernel = {};
    const Outcome outcome = resolved(build.table(), variables.environment, request);
    check_refused(outcome, reason);
    CHECK(outcome.message().starts_with("FLASHDMA_BWD_KERNEL names `" + name + '`'));
  };
  with_problem([](Problem& p) { p.data_type = DataType::fp16; }, "data type is fp16 and the kernel's is bf16");
  with_problem([](Problem& p) { p.head_dim = 64; }, "bucket is 64 and the kernel's is 128");
  with_problem([](Problem& p) { p.head_dim = 136; }, "bucket is 192 and the kernel's is 128");
  with_problem([](Problem& p) { p.bias = BiasKind::tile; }, "bias is tile and the kernel's is none");
  with_problem([](Problem& p) { p.softcap = true; }, "softcap is yes and the kernel's is no");
}

TEST_CASE("a named kernel that the GPU cannot run is an error with the reason") {
  const PretendedBuild build;
  const std::string newer = name_for(Architecture::sm90);
  Request request = request_on(kA100);
  request.device.shared_memory_per_block = kH100.shared_memory_per_block;
  request.kernel = newer;
  check_refused(resolved(build.table(), kNothing, request), "compute capability 8.0 cannot run");
  request.device = kH100;
  request.device.shared_memory_per_block = 1000;
  check_refused(resolved(build.table(), kNothing, request), "bytes of shared memory and the GPU gives a block 1000");
}

TEST_CASE("an unknown kernel is an error that suggests the nearest name") {
  const PretendedBuild build(set_of({Architecture::sm80}));
  Request request = request_on(kA100);
  const std::string name = name_for(Architecture::sm80);
  std::string misspelt = name;
  misspelt[misspelt.size() - 1] = 'z';
  request.kernel = misspelt;
  check_refused(resolved(build.table(), kNothing, request), "Did you mean `" + name + "`?");
  request.kernel = "fastest";
  check_refused(resolved(build.table(), kNothing, request), "expected `bwd_` at `fastest`");
  const std::string elsewhere = name_for(Architecture::sm90);
  request.kernel = elsewhere;
  check_refused(resolved(build.table(), kNothing, request), "profile `pretended` with sm80 has no such kernel");
}

TEST_CASE("FLASHDMA_BWD_ARCH chooses among another architecture's rows where its code runs") {
  const PretendedBuild build;
  DispatchTable native = build.table();
  native.also_native = 90;
  for (const Architecture architecture : kArchitectures) {
    const Variables variables(Values{{"FLASHDMA_BWD_ARCH", std::string(word(architecture))}});
    const Outcome outcome = resolved(native, variables.environment, request_on(kH100));
    INFO(outcome.message());
    REQUIRE(outcome.is(FLASHDMA_BWD_OK));
    CHECK(outcome.resolution.decision == Decision::environment_architecture);
    CHECK(outcome.resolution.form == CodeForm::native);
    CHECK(outcome.resolution.row->architecture == architecture);
    CHECK((outcome.resolution.tier == 0) == (architecture == Architecture::sm90));
    CHECK(contains(outcome.explanation, "kernel: " + name_for(architecture)));
    // Without that build the older tables' kernels run from PTX.
    const Outcome ordinary = resolved(build.table(), variables.environment, request_on(kH100));
    REQUIRE(ordinary.is(FLASHDMA_BWD_OK));
    CHECK((ordinary.resolution.form == CodeForm::ptx) == (architecture != Architecture::sm90));
  }
}

TEST_CASE("FLASHDMA_BWD_ARCH that cannot be honoured is an error") {
  const PretendedBuild build(set_of({Architecture::sm80, Architecture::sm90}));
  const auto refused = [&](const std::string& value, const DeviceTraits& device, const char* reason) {
    const Variables variables(Values{{"FLASHDMA_BWD_ARCH", value}});
    const Request request = request_on(device);
    check_refused(resolved(build.table(), variables.environment, request), reason);
    Request table_only = request;
    table_only.table_only = true;
    CHECK_FALSE(resolved(build.table(), variables.environment, table_only).is(FLASHDMA_BWD_OVERRIDE_ERROR));
  };
  refused("sm86", kH100, "not compiled into this build (sm80, sm90)");
  refused("hopper", kH100, "FLASHDMA_BWD_ARCH is `hopper`: it must be sm80, sm86, sm89 or sm90");
  refused("sm90", kA100, "cannot run");
  refused("sm80", kRtx3090, "101376 bytes of shared memory");
}

TEST_CASE("a kernel and an architecture that contradict each other are an error") {
  const PretendedBuild build;
  const Variables variables(
      Values{{"FLASHDMA_BWD_KERNEL", name_for(Architecture::sm80)}, {"FLASHDMA_BWD_ARCH", "sm90"}});
  check_refused(resolved(build.table(), variables.environment, request_on(kH100)), "unset one of them");
}

TEST_CASE("rows of FLASHDMA_BWD_TABLE come before the built-in ones") {
  const PretendedBuild build;
  // sm90's own choice for another head dim: a tile that exists for bucket 128 on sm86 does not exist on sm90.
  const std::string mine =
      "sm90 head_dim=128 causal=yes => " +
      tile_name(select_among(Architecture::sm90, kH100, ordinary_problem(), generated_rows()).row->use) +
      " ; measured: mine";
  const TemporaryFile file("flashdma_bwd table 1\n# mine\n" + mine + '\n');
  const Variables variables(Values{{"FLASHDMA_BWD_TABLE", file.path()}});
  CHECK(variables.environment.error.empty());
  Request request = request_on(kH100);
  Outcome outcome = resolved(build.table(), variables.environment, request);
  REQUIRE(outcome.is(FLASHDMA_BWD_OK));
  CHECK(outcome.resolution.row->file == "configs/tables/sm90.yaml");
  request.problem.causal = true;
  outcome = resolved(build.table(), variables.environment, request);
  REQUIRE(outcome.is(FLASHDMA_BWD_OK));
  CHECK(outcome.resolution.row->file == file.path());
  CHECK(outcome.resolution.row->line == 3);
  CHECK(contains(outcome.explanation, file.path() + ":3: "));
  CHECK(contains(outcome.explanation, "measured: mine"));
  request.table_only = true;
  outcome = resolved(build.table(), variables.environment, request);
  REQUIRE(outcome.is(FLASHDMA_BWD_OK));
  CHECK(outcome.resolution.row->file == "configs/tables/sm90.yaml");
}

TEST_CASE("a table that cannot be honoured is an error with file and line") {
  const PretendedBuild build;
  const auto refused = [&](const std::string& path, const std::string& reason) {
    const Variables variables(Values{{"FLASHDMA_BWD_TABLE", path}});
    check_refused(resolved(build.table(), variables.environment, request_on(kH100)), reason);
  };
  refused("there/is/no/such/file", "FLASHDMA_BWD_TABLE names there/is/no/such/file, which cannot be read");
  refused("/", "FLASHDMA_BWD_TABLE names /, which cannot be read");
  {
    const TemporaryFile file("");
    refused(file.path(), file.path() + ":1: the first line must be");
  }
  {
    const TemporaryFile file("flashdma_bwd table 1\nsm90 head_dim=100\n");
    refused(file.path(), file.path() + ":2: ");
  }
  {
    const TemporaryFile file(
        "flashdma_bwd table 1\nsm90 head_dim=128 => ampere_m32n32_w4_s2_kv2_dq2_q1_do1 ; derived: tiny\n");
    refused(file.path(), file.path() +
                             ":2 chooses `bwd_sm90_d128_bf16_ampere_m32n32_w4_s2_kv2_dq2_q1_do1_nobias`, which is "
                             "not compiled into this build");
  }
}

TEST_CASE("the log level is read, and a wrong one is told of") {
  CHECK(Variables(Values{}).environment.log == LogLevel::warning);
  CHECK(Variables(Values{{"FLASHDMA_BWD_LOG", "off"}}).environment.log == LogLevel::off);
  CHECK(Variables(Values{{"FLASHDMA_BWD_LOG", "warning"}}).environment.log == LogLevel::warning);
  CHECK(Variables(Values{{"FLASHDMA_BWD_LOG", "info"}}).environment.log == LogLevel::info);
  const Variables wrong(Values{{"FLASHDMA_BWD_LOG", "loud"}});
  CHECK(wrong.environment.log == LogLevel::warning);
  CHECK(contains(wrong.environment.log_error, "`loud`"));
}

TEST_CASE("what the environment monitors is read, and a wrong switch is kept as a message") {
  const Variables none(Values{});
  CHECK(none.environment.capture.empty());
  CHECK_FALSE(none.environment.nvtx);
  const Variables both(Values{{"FLASHDMA_BWD_CAPTURE", "problems.txt"}, {"FLASHDMA_BWD_NVTX", "1"}});
  // The program may change its folder before the file is opened.
  CHECK(both.environment.capture == (std::filesystem::current_path() / "problems.txt").string());
  CHECK(both.environment.nvtx);
  CHECK(both.environment.nvtx_error.empty());
  CHECK_FALSE(both.environment.overrides_selection());
  const Variables off(Values{{"FLASHDMA_BWD_NVTX", "0"}});
  CHECK_FALSE(off.environment.nvtx);
  CHECK(off.environment.nvtx_error.empty());
  const Variables wrong(Values{{"FLASHDMA_BWD_NVTX", "on"}});
  CHECK_FALSE(wrong.environment.nvtx);
  CHECK(contains(wrong.environment.nvtx_error, "`on`: it must be 0 or 1"));
}

TEST_CASE("the length of pieces is a positive number") {
  CHECK(Variables(Values{}).environment.piece_steps == 0);
  const Variables given(Values{{"FLASHDMA_BWD_PIECE_STEPS", "3"}});
  CHECK(given.environment.piece_steps == 3);
  CHECK(given.environment.piece_steps_error.empty());
  CHECK_FALSE(given.environment.overrides_selection());
  for (const char* text : {"0", "-1", "x", "3x", " 3", "99999999999"}) {
    const Variables wrong(Values{{"FLASHDMA_BWD_PIECE_STEPS", text}});
    CHECK(wrong.environment.piece_steps == 0);
    CHECK(contains(wrong.environment.piece_steps_error, '`' + std::string(text) + '`'));
  }
}

TEST_CASE("empty variables are as good as none") {
  const Variables variables(Values{{"FLASHDMA_BWD_KERNEL", ""},
                                   {"FLASHDMA_BWD_TABLE", ""},
                                   {"FLASHDMA_BWD_ARCH", ""},
                                   {"FLASHDMA_BWD_LOG", ""},
                                   {"FLASHDMA_BWD_PIECE_STEPS", ""}});
  CHECK_FALSE(variables.environment.overrides_selection());
  CHECK(variables.environment.piece_steps_error.empty());
  CHECK(variables.environment.log_error.empty());
}

}  // namespace flashdma_bwd::testing
