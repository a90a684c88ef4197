// A run-time cache on the command line: shown, and made rows of.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "config/load.hpp"
#include "generator/files.hpp"
#include "plan/plan.hpp"
#include "selection/configuration_name.hpp"
#include "selection/problem_text.hpp"
#include "selection/select_kernel.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"
#include "tune/cache_choices.hpp"
#include "tune/commands/command_line.hpp"
#include "tune/record_json.hpp"
#include "tuner/fake_device.hpp"
#include "tuner/timing_model.hpp"
#include "tuning/candidates.hpp"
#include "validation/validate.hpp"

namespace flashdma_bwd::tune::test {
namespace {

namespace fs = std::filesystem;
using generator::Evidence;
using generator::MeasuredProblem;
using generator::MeasuredTile;
using generator::test::kDevice;
using generator::test::read;
using generator::test::source_dir;
using generator::test::write;
using testing::TemporaryFolder;

constexpr double kBound = 0.03;

struct Outcome {
  int code = -1;
  std::string out, err;
};

Outcome run_line(std::vector<std::string> arguments) {
  std::ostringstream out, err;
  const Surroundings surroundings{out, err, false, false, {}, {}, {}, {}, {}};
  const int code = run_command_line(std::move(arguments), surroundings);
  return {code, out.str(), err.str()};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

std::vector<Row> all_rows(const generator::Configuration& configuration) {
  std::vector<Row> rows;
  for (const generator::Table& table : configuration.tables)
    for (const generator::TableRow& row : table.rows) rows.push_back(as_row(table, row));
  return rows;
}

TileConfig choice_of(const generator::Configuration& configuration, const Problem& problem) {
  return select_among(Architecture::sm90, kDevice, problem, all_rows(configuration)).config.tile;
}

std::string name_of(const Problem& problem, const TileConfig& tile) {
  return configuration_name(generator::kernel_of(Architecture::sm90, problem, tile));
}

/// What the library would keep of times: the table's choice, unless another is faster beyond the noise, and the next.
CacheRecord record_of(const generator::Configuration& configuration, MeasuredProblem measured) {
  const MeasuredTile incumbent = *find_tile(measured, choice_of(configuration, measured.problem));
  std::ranges::sort(measured.tiles, {}, [](const MeasuredTile& tile) { return tile.cold.ms; });
  const double noise = std::max({0.01 * incumbent.cold.ms, incumbent.cold.spread_ms});
  const MeasuredTile winner =
      incumbent.cold.ms > measured.tiles.front().cold.ms + noise ? measured.tiles.front() : incumbent;
  std::erase_if(measured.tiles, [&](const MeasuredTile& tile) { return tile.tile == winner.tile; });
  CacheRecord record;
  record.environment = {90, 132, generator::table_hash(all_rows(configuration)), "13.0"};
  record.problem = measured.problem;
  record.kernel = name_of(measured.problem, winner.tile);
  record.ms = winner.cold.ms;
  record.spread_ms = winner.cold.spread_ms;
  record.runner_up = name_of(measured.problem, measured.tiles.front().tile);
  record.runner_up_ms = measured.tiles.front().cold.ms;
  record.measured = record.feasible = static_cast<int>(measured.tiles.size()) + 1;
  record.date = "2025-11-22T10:20:30Z";
  return record;
}

/// A copy of configs/, and a cache of what the timing model says.
struct Workshop {
  TemporaryFolder folder;
  generator::Configuration shipped = generator::test::shipped();
  std::vector<MeasuredProblem> measured =
      generator::test::measure(shipped, generator::test::dense_problems(128, 512, 8192, {4, 64}), 1, 12);
  std::vector<CacheRecord> records;

  Workshop() {
    fs::copy(source_dir() / "configs", folder.path() / "configs", fs::copy_options::recursive);
    for (const MeasuredProblem& problem : measured) records.push_back(record_of(shipped, problem));
  }
  std::string table() const { return folder.path("configs/tables/sm90.yaml"); }
  std::string cache() const { return folder.path("choices.jsonl"); }
  std::string text() const {
    std::string text;
    for (const CacheRecord& record : records) text += record_text(record) + '\n';
    return text;
  }
  Outcome import_text(const std::string& text, std::vector<std::string> more = {}) const {
    write(cache(), text);
    std::vector<std::string> arguments{"import", cache(), "--configs", folder.path("configs")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_line(arguments);
  }
  Outcome show_text(const std::string& text, std::vector<std::string> more = {}) const {
    write(cache(), text);
    std::vector<std::string> arguments{"show", cache()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_line(arguments);
  }
  generator::Configuration configuration() const {
    generator::Diagnostics diagnostics;
    generator::Configuration result = generator::load_configuration(folder.path("configs"), diagnostics);
    validate(result, diagnostics);
    CHECK(diagnostics.empty());
    return result;
  }
  /// Records whose kernel is not the table's choice.
  std::size_t changed() const {
    return static_cast<std::size_t>(std::ranges::count_if(records, [&](const CacheRecord& record) {
      return record.kernel != name_of(record.problem, choice_of(shipped, record.problem));
    }));
  }
};

std::string without_measured_rows(const std::string& text) {
  std::istringstream lines(text);
  std::string result;
  for (std::string line; std::getline(lines, line);)
    if (!has(line, "measured: {")) result += line + '\n';
  return result;
}

}  // namespace

/// The workshop's cache asks for no row, and leaves the table as it is.
void check_no_row(const Workshop& workshop) {
  const std::string before = read(workshop.table());
  const Outcome outcome = workshop.import_text(workshop.text());
  INFO(outcome.out << outcome.err);
  CHECK(outcome.code == kFine);
  CHECK(has(outcome.out, "no row is asked for\n"));
  CHECK(read(workshop.table()) == before);
}

TEST_CASE("show prints the choices of a cache and its environments", "[import]") {
  Workshop workshop;
  workshop.records.resize(3);
  workshop.records[2].environment.sm_count = 78;
  const Outcome text = workshop.show_text(workshop.text());
  CHECK(text.code == kFine);
  CHECK(text.err.empty());
  for (const CacheRecord& record : workshop.records) {
    CHECK(has(text.out, problem_text(record.problem) + "  (compute capability 9.0, "));
    CHECK(has(text.out, record.kernel + '\n'));
    CHECK(has(text.out, record.runner_up + '\n'));
  }
  const std::string hash = workshop.records[0].environment.table_hash;
  CHECK(text.out.ends_with("environment 1: compute capability 9.0, 132 SMs, CUDA 13.0, tables " + hash +
                           ": 2 records\nenvironment 2: compute capability 9.0, 78 SMs, CUDA 13.0, tables " + hash +
                           ": 1 record\n"));
}

TEST_CASE("show prints a cache as an array of its records", "[import]") {
  const Workshop workshop;
  const Outcome json = workshop.show_text(workshop.text(), {"--format", "json"});
  CHECK(json.code == kFine);
  const auto array = nlohmann::ordered_json::parse(json.out);
  REQUIRE(array.size() == workshop.records.size());
  for (std::size_t i = 0; i < array.size(); ++i) CHECK(array[i].dump() == record_text(workshop.records[i]));
}

TEST_CASE("a cache's choices become rows of a valid table", "[import]") {
  const Workshop workshop;
  REQUIRE(workshop.changed() > 5);
  REQUIRE(workshop.changed() < workshop.records.size());
  const std::string before = read(workshop.table());
  const Outcome outcome = workshop.import_text(workshop.text(), {"--commit", "0123456789ab"});
  INFO(outcome.out << outcome.err);
  REQUIRE(outcome.code == kFine);
  CHECK(outcome.err.empty());
  CHECK(outcome.out.starts_with("sm90, 40 choices of a run-time cache, compute capability 9.0, 132 SMs, "));
  CHECK(has(outcome.out, "the table's choice has no time in the cache: it is slower beyond the noise, "));
  const std::string after = read(workshop.table());
  CHECK(after != before);
  CHECK(without_measured_rows(after) == without_measured_rows(before));
  CHECK(has(after,
            "measured: {gpu: \"compute capability 9.0\", sm_count: 132, toolkit: \"CUDA 13.0\", driver: "
            "\"unknown\", date: 2025-11-22, commit: \"0123456789ab\", source: \"run-time cache, tables " +
                workshop.records[0].environment.table_hash + "\", problem: "));

  // Held against all times, of which the cache had two of each problem.
  const generator::Configuration tuned = workshop.configuration();
  for (std::size_t i = 0; i < workshop.measured.size(); ++i) {
    const MeasuredProblem& point = workshop.measured[i];
    const CacheRecord& record = workshop.records[i];
    INFO(record_text(record));
    const TileConfig was = choice_of(workshop.shipped, point.problem), is = choice_of(tuned, point.problem);
    REQUIRE(find_tile(point, is) != nullptr);
    CHECK_FALSE(slower_beyond_noise(find_tile(point, is)->cold, find_tile(point, was)->cold));
    if (record.kernel != name_of(point.problem, was) && record.runner_up != name_of(point.problem, was))
      CHECK(find_tile(point, is)->cold.ms <= record.ms * (1 + kBound));
  }
  // Beyond the lengths that were measured all is as before.
  for (const Problem& problem : generator::test::dense_problems(128, 16384, 65536, {4, 64}))
    CHECK(choice_of(tuned, problem) == choice_of(workshop.shipped, problem));

  check_no_row(workshop);
}

TEST_CASE("the bound and --keep-table decide whether a choice changes the table", "[import]") {
  Workshop workshop;
  // One problem whose next is the table's choice, 6 % slower.
  MeasuredProblem duel = workshop.measured.front();
  const TileConfig incumbent = choice_of(workshop.shipped, duel.problem);
  std::erase_if(duel.tiles, [&](const MeasuredTile& tile) { return tile.tile == incumbent; });
  duel.tiles.resize(1);
  duel.tiles.front().cold = {1, 0.001};
  duel.tiles.push_back({incumbent, {1.06, 0.001}, {}, Evidence::timed});
  workshop.records = {record_of(workshop.shipped, duel)};
  const std::string before = read(workshop.table());
  const Outcome wide = workshop.import_text(workshop.text(), {"--bound", "10"});
  CHECK(wide.code == kFine);
  CHECK(has(wide.out, "no row is asked for\n"));
  const Outcome kept = workshop.import_text(workshop.text(), {"--keep-table"});
  CHECK(kept.code == kFine);
  CHECK(has(kept.out, "1 row is asked for:\n"));
  CHECK(read(workshop.table()) == before);
  CHECK(workshop.import_text(workshop.text()).code == kFine);
  CHECK(has(read(workshop.table()), "ms: 1, spread_ms: 0.001, runner_up: " + tile_name(incumbent) +
                                        ", runner_up_ms: 1.06, problems: 1, worst_regret_percent: 0}}\n"));
}

TEST_CASE("a table's choice without a time gives way whatever the bound", "[import]") {
  Workshop workshop;
  MeasuredProblem problem = workshop.measured.front();
  const TileConfig incumbent = choice_of(workshop.shipped, problem.problem);
  std::erase_if(problem.tiles, [&](const MeasuredTile& tile) { return tile.tile == incumbent; });
  problem.tiles.resize(2);
  const TileConfig fastest = problem.tiles[0].tile;
  problem.tiles[0].cold = {1, 0.001};
  problem.tiles[1].cold = {1.02, 0.001};
  problem.tiles.push_back({incumbent, {1.06, 0.001}, {}, Evidence::timed});
  workshop.records = {record_of(workshop.shipped, problem)};
  const Outcome outcome = workshop.import_text(workshop.text(), {"--bound", "10"});
  CHECK(outcome.code == kFine);
  CHECK(has(outcome.out, "\nof 1 of them the table's choice has no time in the cache: "));
  CHECK(has(outcome.out, ": at least 1.0200 ms " + tile_name(incumbent) + ", best 1.0000 ms "));
  CHECK(has(outcome.out, "1 row is asked for:\n"));
  CHECK(choice_of(workshop.configuration(), problem.problem) == fastest);
}

TEST_CASE("a choice that is the table's asks for no row, even if the next was faster within the noise", "[import]") {
  Workshop workshop;
  for (CacheRecord& record : workshop.records) {
    const std::string incumbent = name_of(record.problem, choice_of(workshop.shipped, record.problem));
    if (record.kernel != incumbent) record.runner_up = std::exchange(record.kernel, incumbent);
    record.ms = 1;
    record.spread_ms = 0.01;
    record.runner_up_ms = 0.9;
  }
  check_no_row(workshop);
}

TEST_CASE("environments are not mixed", "[import]") {
  const Workshop workshop;
  CacheRecord other = workshop.records.front();
  other.environment.toolkit = "12.8";
  CacheRecord repeated = workshop.records.front();
  repeated.runner_up_ms *= 2;
  const std::string before = read(workshop.table());
  const std::string mixed = record_text(other) + '\n' + workshop.text() + record_text(repeated) + '\n';
  const Outcome several = workshop.import_text(mixed);
  CHECK(several.code == kUsage);
  CHECK(has(several.err,
            "the records are of several environments, whose times are not mixed: choose one with "
            "--environment\nenvironment 1: compute capability 9.0, 132 SMs, CUDA 12.8, tables "));
  CHECK(has(several.err, "\nenvironment 2: compute capability 9.0, 132 SMs, CUDA 13.0, tables "));
  CHECK(several.out.empty());
  CHECK(workshop.import_text(mixed, {"--environment", "3"}).code == kUsage);
  CHECK(workshop.import_text(mixed, {"--environment", "0"}).code == kUsage);
  CHECK(read(workshop.table()) == before);

  const Outcome chosen = workshop.import_text(mixed, {"--environment", "2"});
  CHECK(chosen.code == kFine);
  CHECK(chosen.err == workshop.cache() +
                          ":1: warning: left out, of another environment than the one chosen (1 record)\n" +
                          workshop.cache() + ":42: warning: left out, an earlier record has the problem (1 record)\n");
  const Workshop alone;
  CHECK(alone.import_text(alone.text()).code == kFine);
  CHECK(read(workshop.table()) == read(alone.table()));
}

TEST_CASE("records of other tables are judged as far as they name the table's choice", "[import]") {
  Workshop workshop;
  std::size_t silent = 0;
  for (CacheRecord& record : workshop.records) {
    record.environment.table_hash = "0123456789abcdef";
    const std::string incumbent = name_of(record.problem, choice_of(workshop.shipped, record.problem));
    if (record.kernel != incumbent && record.runner_up != incumbent) ++silent;
  }
  REQUIRE(silent > 0);
  const Outcome outcome = workshop.import_text(workshop.text());
  INFO(outcome.err);
  CHECK(outcome.code == kFine);
  CHECK(has(outcome.err, "has other tables now than the library that measured (" + std::to_string(silent)));
  const generator::Configuration tuned = workshop.configuration();
  for (const CacheRecord& record : workshop.records) {
    const TileConfig was = choice_of(workshop.shipped, record.problem);
    if (record.kernel != name_of(record.problem, was) && record.runner_up != name_of(record.problem, was))
      CHECK(choice_of(tuned, record.problem) == was);
  }
}

TEST_CASE("a GPU without a table, and kernels of another architecture, make no rows", "[import]") {
  Workshop workshop;
  const std::string before = read(workshop.table());
  for (const int capability : {87, 100}) {
    for (CacheRecord& record : workshop.records) record.environment.compute_capability = capability;
    const Outcome none = workshop.import_text(workshop.text());
    CHECK(none.code == kFindings);
    CHECK(has(none.err, "there is no table for GPUs of compute capability " + std::to_string(capability / 10) + '.'));
  }
  Workshop elsewhere;
  for (CacheRecord& record : elsewhere.records) {
    KernelConfig kernel = *parse_configuration_name(record.kernel).value;
    kernel.architecture = Architecture::sm80;
    kernel.tile = {KernelFamily::ampere, 64, 64, 8, 2, 2, 2, 2, 2, false};
    record.kernel = configuration_name(kernel);
    record.runner_up_ms = 2 * record.ms;
  }
  const Outcome foreign = elsewhere.import_text(elsewhere.text());
  INFO(foreign.out << foreign.err);
  CHECK(foreign.code == kFine);
  CHECK(has(foreign.err,
            ":1: warning: the kernel is of another architecture, no row of sm90 can name it: the problem "
            "keeps its row (40 records)\n"));
  CHECK(has(foreign.out, "no row is asked for\n"));
  CHECK(read(workshop.table()) == before);
  CHECK(read(elsewhere.table()) == before);
}

TEST_CASE("damaged lines are found, shown and passed over, and make no rows", "[import]") {
  Workshop workshop;
  workshop.records.resize(2);
  const std::string first = record_text(workshop.records[0]), second = record_text(workshop.records[1]);
  const std::string before = read(workshop.table());
  const std::string misspelt = [&] {
    std::string text = second;
    return text.replace(text.find("\"ms\""), 4, "\"mss\"");
  }();
  const std::string text = first + "\n" + second.substr(0, 70) + "\n\n" + misspelt + "\n" + second + "\n";
  const Outcome shown = workshop.show_text(text);
  INFO(shown.err);
  CHECK(shown.code == kFindings);
  CHECK(has(shown.err, "choices.jsonl:2:71: error: no record: expected "));
  CHECK(has(shown.err, "choices.jsonl:4:1: error: no record: `mss` is no part of a record, did you mean `ms`?"));
  CHECK(has(shown.err, "[cache-record]"));
  CHECK(has(shown.err, "2 errors\n"));
  CHECK(has(shown.out, ": 2 records\n"));
  CHECK(nlohmann::json::parse(workshop.show_text(text, {"--format", "json"}).out).size() == 2);
  const Outcome refused = workshop.import_text(text);
  CHECK(refused.code == kFindings);
  CHECK(has(refused.err, "choices.jsonl:2:71: error: "));
  CHECK(has(refused.err, "no row is made of a damaged cache\n"));
  CHECK(refused.out.empty());
  CHECK(read(workshop.table()) == before);
  for (std::size_t size = 1; size < first.size(); ++size) {
    const Outcome cut = workshop.show_text(first.substr(0, size));
    CHECK(cut.code == kFindings);
    CHECK(cut.out.empty());
  }
}

TEST_CASE("records of another version are passed over with a warning", "[import]") {
  const Workshop workshop;
  const std::string text = "{\"version\":2,\"compute_capability\":90}\n{\"version\":3}\n" + workshop.text();
  for (const Outcome& outcome : {workshop.show_text(text), workshop.import_text(text, {"--keep-table"})}) {
    CHECK(outcome.code == kFine);
    CHECK(outcome.err == workshop.cache() +
                             ":1: warning: a record of version 2, and this library reads version 1; 2 records of other "
                             "versions passed over: the flashdma-tune of the library that wrote them reads them\n");
  }
  CHECK(has(workshop.import_text("{\"version\":2,\"compute_capability\":90}\n").err, ": it has no record\n"));
}

TEST_CASE("a file that is no cache is refused", "[import]") {
  const Workshop workshop;
  const std::string before = read(workshop.table());
  const auto refuses = [&](const Outcome& outcome, const std::string& words) {
    INFO(outcome.err);
    CHECK(outcome.code == kFindings);
    CHECK(has(outcome.err, words));
    CHECK(outcome.out.empty());
    CHECK(read(workshop.table()) == before);
  };
  for (const std::string text : {"architecture: sm90\n", "[1, 2]\n", "{\"name\": 1}\n",
                                 "\x7f"
                                 "ELF\n"}) {
    refuses(workshop.show_text(text), "is neither a store of flashdma-tune, whose lines begin like `{\"version\":1,");
    refuses(workshop.import_text(text), "nor a run-time cache of the library, whose lines begin like `{\"version\":1,");
  }
  const std::string store = record_line(test_measurement(128)) + '\n';
  refuses(workshop.import_text(store), "is a store of flashdma-tune, not a run-time cache");
  CHECK(has(workshop.show_text(store).out, "commit 0123456789ab"));
  refuses(workshop.import_text("\n"), ": it has no record\n");
  CHECK(workshop.show_text("\n").code == kFine);
  refuses(run_line({"import", workshop.folder.path("none"), "--configs", workshop.folder.path("configs")}),
          "No such file or directory");
  refuses(run_line({"import", workshop.folder.path("configs"), "--configs", workshop.folder.path("configs")}),
          "it is a folder");
  CHECK(run_line({"import"}).code == kUsage);
}

TEST_CASE("a record says what the table's choice takes at least", "[import]") {
  const Workshop workshop;
  const Problem problem = workshop.measured.front().problem;
  const TileConfig fast{KernelFamily::ampere, 64, 128, 8, 2, 2, 2, 2, 1, false};
  const TileConfig next{KernelFamily::ampere, 64, 64, 8, 2, 2, 2, 2, 2, false};
  const TileConfig chosen{KernelFamily::ampere, 128, 64, 8, 2, 2, 2, 2, 2, false};
  CacheRecord record = workshop.records.front();
  record.kernel = name_of(problem, fast);
  record.runner_up = name_of(problem, next);
  record.ms = 1;
  record.runner_up_ms = 1.25;
  const MeasuredProblem raced = measured_problem(record, Architecture::sm90, chosen, true);
  REQUIRE(raced.tiles.size() == 3);
  CHECK(raced.date == "2025-11-22");
  CHECK(find_tile(raced, fast)->evidence == Evidence::timed);
  CHECK(find_tile(raced, chosen)->evidence == Evidence::at_least);
  CHECK(find_tile(raced, chosen)->cold.ms == 1.25);
  CHECK(find_tile(measured_problem(record, Architecture::sm90, chosen, false), chosen) == nullptr);
  CHECK(find_tile(measured_problem(record, Architecture::sm90, next, true), next)->evidence == Evidence::timed);
  // Of another architecture a tile is another kernel.
  const MeasuredProblem foreign = measured_problem(record, Architecture::sm89, fast, false);
  REQUIRE(foreign.tiles.size() == 1);
  CHECK(foreign.tiles[0].tile == next);
  CHECK(foreign.tiles[0].evidence == Evidence::elsewhere);
  record.runner_up.clear();
  CHECK(measured_problem(record, Architecture::sm90, chosen, true).tiles.size() == 1);
}

}  // namespace flashdma_bwd::tune::test
