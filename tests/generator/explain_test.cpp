// `explain` says what the library's own selection says.
#include "selection/explain.hpp"

#include <nlohmann/json.hpp>
#include <sstream>

#include "commands/command_line.hpp"
#include "config/load.hpp"
#include "generator/files.hpp"
#include "plan/plan.hpp"
#include "selection/configuration_name.hpp"
#include "selection/gpu_presets.hpp"
#include "support/catch.hpp"

namespace flashdma_bwd::generator::test {
namespace {

struct Outcome {
  int code;
  std::string out, err;
};

Outcome explain(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), {"explain", "--configs", (source_dir() / "configs").string()});
  std::ostringstream out, err;
  const int code = run_command_line(std::move(arguments), {out, err, false});
  return {code, out.str(), err.str()};
}

/// The rows of the shipped tables. The configuration keeps their texts.
std::vector<Row> rows_of(const Configuration& configuration) {
  return make_plan(configuration, *find_profile(configuration, "full")).rows;
}

}  // namespace

TEST_CASE("explain prints selection's own words and kernel", "[explain]") {
  Diagnostics diagnostics;
  const Configuration configuration = load_configuration(source_dir() / "configs", diagnostics);
  const std::vector<Row> rows = rows_of(configuration);
  Problem problem;
  problem.head_dim = 72;
  problem.data_type = DataType::fp16;
  problem.bias = BiasKind::key_vector;
  problem.causal = true;
  problem.softcap = true;
  problem.batch = 2;
  problem.heads = 8;
  problem.heads_kv = 4;
  problem.seqlen_q = 100;
  problem.seqlen_k = 3000;
  problem.window = 40;
  for (const GpuPreset& preset : kGpuPresets) {
    INFO(preset.name);
    const SelectionResult expected = select_kernel(preset.traits, problem, rows);
    REQUIRE(expected.status == SelectionStatus::ok);
    const std::vector<std::string> arguments{"--gpu",      std::string(preset.name),
                                             "--head-dim", "72",
                                             "--dtype",    "fp16",
                                             "--bias",     "key_vector",
                                             "--causal",   "--softcap",
                                             "--batch",    "2",
                                             "--heads",    "8",
                                             "--heads-kv", "4",
                                             "--seqlen-q", "100",
                                             "--seqlen-k", "3000",
                                             "--window",   "40"};
    const Outcome text = explain(arguments);
    CHECK(text.code == 0);
    CHECK(text.err.empty());
    CHECK(text.out.find(explain_selection(preset.traits, problem, rows)) != std::string::npos);

    std::vector<std::string> as_json = arguments;
    as_json.push_back("--format=json");
    const nlohmann::json document = nlohmann::json::parse(explain(as_json).out);
    REQUIRE(document.size() == 1);
    CHECK(document[0]["gpu"] == std::string(preset.name));
    CHECK(document[0]["kernel"] == configuration_name(expected.config));
    CHECK(document[0]["profiles"].get<std::string>().find("full") != std::string::npos);
  }
}

TEST_CASE("without a GPU on the command line, explain answers for all that it knows", "[explain]") {
  const nlohmann::json document = nlohmann::json::parse(explain({"--format", "json"}).out);
  CHECK(document.size() == std::size(kGpuPresets));
}

TEST_CASE("a GPU without a name has the shared memory of its architecture", "[explain]") {
  const nlohmann::json document =
      nlohmann::json::parse(explain({"--compute-capability", "89", "--sm-count", "60", "--format=json"}).out);
  CHECK(document[0]["shared_memory_per_block"] == 101376);
  CHECK(document[0]["row"].get<std::string>().starts_with("configs/tables/sm89.yaml:"));
}

TEST_CASE("a GPU that nothing runs on is a finding", "[explain]") {
  const Outcome outcome = explain({"--compute-capability", "75", "--sm-count", "40"});
  CHECK(outcome.code == kFindings);
  CHECK(outcome.out.find("7.5") != std::string::npos);
}

TEST_CASE("the presets are GPUs of the shipped architectures", "[explain]") {
  Diagnostics diagnostics;
  const Configuration configuration = load_configuration(source_dir() / "configs", diagnostics);
  for (const GpuPreset& preset : kGpuPresets) {
    INFO(preset.name);
    bool found = false;
    for (const ArchitectureSpec& spec : configuration.architectures)
      found = found || (spec.compute_capability == preset.traits.compute_capability &&
                        spec.shared_memory_per_block == preset.traits.shared_memory_per_block);
    CHECK(found);
  }
}

TEST_CASE("explain makes of a mask what the library makes of it", "[explain]") {
  const auto layout_of = [](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--gpu", "H100", "--masked", "--format", "json"});
    const Outcome outcome = explain(arguments);
    INFO(outcome.err);
    REQUIRE(outcome.code == 0);
    const nlohmann::json entry = nlohmann::json::parse(outcome.out)[0];
    const auto layout = entry["layout"].get<std::string>();
    CHECK(entry["explanation"].get<std::string>().find("mask " + layout) != std::string::npos);
    return layout + ", " + entry["layout_rule"].get<std::string>();
  };
  CHECK(layout_of({"--seqlen-q", "2048"}).find("reordered, each mask decides") == 0);
  CHECK(layout_of({"--layout", "auto"}).find("reordered, each mask decides") == 0);
  CHECK(layout_of({"--seqlen-q", "4096", "--seqlen-k", "2047"}) == "natural, fewer than 2048 keys");
  CHECK(layout_of({"--bias", "tile"}).find("natural, tile bias") == 0);
  CHECK(layout_of({"--bias", "tile", "--bias-copies"}).find("natural, tile bias") == 0);
  CHECK(layout_of({"--bias", "tile", "--bias-copies", "--seqlen-q", "1"}).find("natural, tile bias") == 0);
  CHECK(layout_of({"--seqlen-q", "1", "--seqlen-k", "4096"}).find("compacted, one row") == 0);
  for (const std::string layout : {"natural", "compacted", "reordered"})
    CHECK(layout_of({"--layout", layout}) == layout + ", asked for");
  const Outcome text = explain({"--gpu", "H100", "--masked", "--seqlen-q", "1000"});
  CHECK(text.out.find("\nlayout: natural (fewer than 2048 keys)\n") != std::string::npos);
}

TEST_CASE("a mask density of 0 is unknown, as in the API", "[explain]") {
  const auto with = [](std::vector<std::string> more) {
    more.insert(more.end(), {"--gpu", "H100", "--masked"});
    return explain(more).out;
  };
  CHECK(with({"--mask-density", "0"}).find("of unknown density or full") != std::string::npos);
  CHECK(with({"--mask-density", "0"}) == with({}));
  CHECK(with({"--mask-density", "1"}).find("with 1 of 1000 pairs active") != std::string::npos);
}

TEST_CASE("explain refuses options that have no effect, and what no call is", "[explain]") {
  const auto refused = [](const std::vector<std::string>& arguments, const std::string& why) {
    const Outcome outcome = explain(arguments);
    INFO(outcome.err);
    CHECK(outcome.code == kUsage);
    CHECK(outcome.out.empty());
    CHECK(outcome.err.find(why) != std::string::npos);
  };
  refused({"--layout", "reordered"}, "--layout without --masked");
  refused({"--layout", "auto"}, "--layout without --masked");
  refused({"--mask-density", "0"}, "--mask-density without --masked");
  refused({"--bias-copies"}, "--bias-copies without --bias tile");
  refused({"--window", "64"}, "--window without --causal");
  refused({"--causal", "--masked", "--window", "64"}, "--window with --masked");
  refused({"--causal", "--window", "4096"}, "--window 4096 leaves all of --seqlen-q 4096 queries");
  for (const std::string layout : {"compacted", "reordered"})
    refused({"--masked", "--bias", "tile", "--bias-copies", "--layout", layout}, "with keys that are " + layout);
  refused({"--masked", "--layout", "sorted"}, "`sorted` is not");
}

}  // namespace flashdma_bwd::generator::test
