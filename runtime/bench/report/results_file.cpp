// Reading results. See results_file.hpp, and report.cpp in the folder above for who writes them.
#include "report/results_file.hpp"

#include <cmath>
#include <utility>

#include "report/located_json.hpp"

namespace flashdma_bwd::bench {
namespace {

constexpr std::int64_t kMostOfACount = 2147483647;  // as the arguments of a call have it
constexpr double kLongest = 1e12;                   // ms

/// The members of one object, with diagnostics.
class Reader {
 public:
  Reader(const std::string& path, std::vector<std::string>& errors) : path_(path), errors_(errors) {}

  void complain(Place place, const std::string& what) { errors_.push_back(path_ + ':' + place_text(place) + what); }

  /// The member of this kind; a complaint and nullptr where it is of another or, if `required`, not there.
  const JsonValue* member(const JsonValue& object, const char* name, JsonKind kind, bool required) {
    const JsonValue* value = object.member(name);
    if (value == nullptr) {
      if (required) complain(object.place, "\"" + std::string(name) + "\" is missing: " + kind_text(kind));
      return nullptr;
    }
    if (value->kind == kind) return value;
    complain(value->place,
             "\"" + std::string(name) + "\" must be " + kind_text(kind) + ", not " + kind_text(value->kind));
    return nullptr;
  }
  std::string text(const JsonValue& object, const char* name, bool required = false) {
    const JsonValue* value = member(object, name, JsonKind::string, required);
    return value != nullptr ? value->string : std::string();
  }
  /// A number in 0 ... most; 0 where there is none.
  double number(const JsonValue& object, const char* name, double most) {
    const JsonValue* value = member(object, name, JsonKind::number, false);
    if (value == nullptr) return 0;
    if (std::isfinite(value->number) && value->number >= 0 && value->number <= most) return value->number;
    complain(value->place,
             "\"" + std::string(name) + "\" is out of range: " + (most == 1 ? "a fraction is 0 ... 1" : "0 or more"));
    return 0;
  }
  double positive(const JsonValue& object, const char* name) {
    const JsonValue* value = member(object, name, JsonKind::number, true);
    if (value == nullptr) return 0;
    if (std::isfinite(value->number) && value->number > 0 && value->number <= kLongest) return value->number;
    complain(value->place, "\"" + std::string(name) + "\" must be more than 0 ms");
    return 0;
  }

 private:
  const std::string& path_;
  std::vector<std::string>& errors_;
};

bool has_usual_sizes(const Problem& problem) {
  for (const std::int64_t count : {problem.batch, problem.heads, problem.heads_kv, problem.head_dim, problem.seqlen_q,
                                   problem.seqlen_k, problem.window, problem.top_w, problem.width})
    if (count > kMostOfACount) return false;
  return true;
}

void read_problem(Reader& reader, const JsonValue& object, Measurement& measurement) {
  const JsonValue* value = reader.member(object, "problem", JsonKind::string, true);
  if (value == nullptr) return;
  measurement.problem_text = value->string;
  std::string error;
  if (!parse_problem(value->string, measurement.problem, error))
    reader.complain(value->place, "\"problem\": " + error);
  else if (!has_usual_sizes(measurement.problem))
    reader.complain(value->place, "\"problem\": a size is more than " + std::to_string(kMostOfACount));
}

void read_plan(Reader& reader, const JsonValue& object, Measurement& measurement) {
  const JsonValue* plan = reader.member(object, "plan", JsonKind::object, false);
  if (plan == nullptr) return;
  measurement.plan = PlanFigures{reader.text(*plan, "layout"), reader.number(*plan, "ms", kLongest),
                                 reader.number(*plan, "planned_ms", kLongest)};
}

void read_figures(Reader& reader, const JsonValue& object, Measurement& measurement) {
  const bool own = measurement.backend == kOwnBackend;
  measurement.kernel = own ? reader.text(object, "kernel", true) : std::string();
  measurement.row = own ? reader.text(object, "row", true) : std::string();
  measurement.ms = reader.positive(object, "ms");
  measurement.fastest_ms = reader.number(object, "fastest_ms", kLongest);
  if (object.member("active_fraction") != nullptr)
    measurement.active_fraction = reader.number(object, "active_fraction", 1);
  read_plan(reader, object, measurement);
}

Measurement read_measurement(Reader& reader, const JsonValue& object, const std::string& backend) {
  Measurement measurement;
  measurement.backend = object.member("backend") != nullptr ? reader.text(object, "backend") : backend;
  if (measurement.backend.empty())
    reader.complain(object.place, "\"backend\" is missing, here and at the file's beginning: what was timed?");
  measurement.set = reader.text(object, "set");
  read_problem(reader, object, measurement);
  if (object.member("failure") != nullptr) {
    measurement.failure = reader.text(object, "failure", true);
    if (measurement.failure.empty()) measurement.failure = "no reason given";
  } else {
    read_figures(reader, object, measurement);
  }
  return measurement;
}

Ceilings read_ceilings(Reader& reader, const JsonValue& root) {
  Ceilings ceilings;
  const JsonValue* object = reader.member(root, "ceilings", JsonKind::object, false);
  if (object == nullptr) return ceilings;
  constexpr double kMost = 1e9;
  ceilings.dense_tflops = reader.number(*object, "dense_tflops", kMost);
  ceilings.dense_source = reader.text(*object, "dense_source");
  ceilings.copy_gb_per_s = reader.number(*object, "copy_gb_per_s", kMost);
  ceilings.copy_source = reader.text(*object, "copy_source");
  return ceilings;
}

void read_root(Reader& reader, const JsonValue& root, ResultsFile& file) {
  if (root.kind != JsonKind::object) {
    reader.complain(root.place,
                    std::string("expected an object with \"benchmark\" and \"results\", not ") + kind_text(root.kind));
    return;
  }
  const JsonValue* benchmark = root.member("benchmark");
  if (benchmark == nullptr || benchmark->kind != JsonKind::string || benchmark->string != "backward") {
    reader.complain(benchmark != nullptr ? benchmark->place : root.place,
                    "not a file of results: \"benchmark\" must be \"backward\", as `flashdma-bench --json` writes it");
    return;
  }
  Environment& environment = file.environment;
  const std::pair<const char*, std::string*> fields[] = {
      {"gpu", &environment.gpu},         {"driver", &environment.driver},         {"toolkit", &environment.toolkit},
      {"library", &environment.library}, {"table_hash", &environment.table_hash}, {"commit", &environment.commit}};
  for (const auto& [name, value] : fields) *value = reader.text(root, name);
  file.ceilings = read_ceilings(reader, root);
  const std::string backend = reader.text(root, "backend");
  const JsonValue* results = reader.member(root, "results", JsonKind::array, true);
  if (results == nullptr) return;
  for (const JsonValue& item : results->items) {
    if (item.kind == JsonKind::object)
      file.measurements.push_back(read_measurement(reader, item, backend));
    else
      reader.complain(item.place, std::string("a result must be an object, not ") + kind_text(item.kind));
  }
}

}  // namespace

ResultsFile read_results(std::string_view text, const std::string& path, std::vector<std::string>& errors) {
  ResultsFile file;
  file.path = path;
  Parsed<JsonValue> root = read_json(text);
  if (!root) {
    errors.push_back(path + ':' + root.error);
    return file;
  }
  Reader reader(path, errors);
  read_root(reader, *root.value, file);
  return file;
}

}  // namespace flashdma_bwd::bench
