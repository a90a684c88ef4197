// The measuring process, played by shell scripts: what it says, and all the ways in which it can end.
#include "generator/files.hpp"
#include "support/catch.hpp"
#include "support/temporary_folder.hpp"
#include "tune/measuring_process.hpp"
#include "tune/record_json.hpp"
#include "tuner/fake_device.hpp"

namespace flashdma_bwd::tune::test {
namespace {

using generator::test::read;
using generator::test::write;
using testing::TemporaryFolder;

/// A script that introduces itself and then does `body` for each request, which is in $request.
struct Script {
  TemporaryFolder folder;
  std::string path;
  explicit Script(const std::string& body, int protocol = kProtocolVersion) : path(folder.path() / "measure.sh") {
    write(path, "count=$(($(cat '" + counter() + "' 2>/dev/null || echo 0) + 1)); echo $count > '" + counter() +
                    "'\ncat <<'END'\n{\"protocol\":" + std::to_string(protocol) +
                    ",\"environment\":" + environment_json(test_environment()).dump() +
                    ",\"kernels\":[\"one\",\"two\"]}\nEND\nwhile read -r request; do\n" + body + "\ndone\n");
  }
  std::string counter() const { return folder.path() / "starts"; }
  int starts() const { return std::stoi(read(counter())); }
  MeasuringProcess process(int seconds = 20) const { return MeasuringProcess("/bin/sh", {path}, seconds); }
};

Request request_of(const Measurement& measurement) {
  Request request{measurement.problem, {}, 15, 0.1};
  for (const Candidate& candidate : measurement.candidates) request.kernels.push_back(candidate.kernel);
  return request;
}

std::string say(const nlohmann::ordered_json& json) {
  return "cat <<'END'\n" + json.dump() + "\nEND\n";
}

std::string results_of(std::vector<Candidate> candidates) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Candidate& candidate : candidates) list.push_back(candidate_json(candidate));
  return say({{"results", list}});
}

}  // namespace

TEST_CASE("the process introduces itself and answers", "[process]") {
  const Measurement wanted = test_measurement(256);
  const Script script(say({{"running", wanted.candidates[0].kernel}}) + results_of(wanted.candidates));
  MeasuringProcess process("/bin/sh", {script.path}, 20);
  DeviceDescription description;
  REQUIRE(process.describe(description) == "");
  CHECK(description.environment == test_environment());
  CHECK(description.kernels == std::vector<std::string>{"one", "two"});
  for (int i = 0; i < 3; ++i) {
    std::vector<Candidate> results;
    REQUIRE(process.measure(request_of(wanted), results) == "");
    Measurement got = wanted;
    got.candidates = results;
    CHECK(record_line(got) == record_line(wanted));
  }
  CHECK(script.starts() == 1);
}

TEST_CASE("a kernel that takes the process with it is blamed, the others are measured", "[process]") {
  const Measurement wanted = test_measurement(256);
  const std::string culprit = wanted.candidates[1].kernel;
  const Script script("case \"$request\" in *" + culprit + "*)\n" + say({{"running", culprit}}) +
                      "kill -SEGV $$;;\n*)\n" + results_of({wanted.candidates[0], wanted.candidates[2]}) + ";;\nesac");
  MeasuringProcess process("/bin/sh", {script.path}, 20);
  std::vector<Candidate> results;
  REQUIRE(process.measure(request_of(wanted), results) == "");
  REQUIRE(results.size() == 3);
  CHECK(results[0].failure.empty());
  CHECK(results[1].kernel == culprit);
  CHECK(results[1].failure.find("signal 11") != std::string::npos);
  CHECK(results[2].failure == wanted.candidates[2].failure);
  CHECK(script.starts() == 2);
}

TEST_CASE("a process that says nothing is ended", "[process]") {
  const Measurement wanted = test_measurement(256);
  const Script script("sleep 60");
  MeasuringProcess process("/bin/sh", {script.path}, 1);
  std::vector<Candidate> results;
  CHECK(process.measure(request_of(wanted), results).find("said nothing for 1 s and was ended") != std::string::npos);
}

TEST_CASE("whatever else goes wrong is said", "[process]") {
  const Request request = request_of(test_measurement(256));
  const auto error_of = [&](const Script& script) {
    MeasuringProcess process("/bin/sh", {script.path}, 20);
    std::vector<Candidate> results;
    return process.measure(request, results);
  };
  CHECK(error_of(Script("exit 5")).find("ended with exit code 5") != std::string::npos);
  CHECK(error_of(Script("echo nonsense")).find("[json-syntax]") != std::string::npos);
  CHECK(error_of(Script("echo '{}'")).find("[missing-key]") != std::string::npos);
  CHECK(error_of(Script("echo '{\"results\":[]}'")).find("said nothing of bwd_sm90") != std::string::npos);
  CHECK(error_of(Script("echo '{\"results\":[{\"kernel\":7}]}'")).find("[wrong-type]") != std::string::npos);
  CHECK(error_of(Script("echo '{\"failure\":\"no memory\"}'")) == "no memory");
  CHECK(error_of(Script(":", 2)).find("[out-of-range]") != std::string::npos);
  DeviceDescription description;
  CHECK(MeasuringProcess("/no/such/program").describe(description) ==
        "/no/such/program: the measuring program cannot be run");
}

}  // namespace flashdma_bwd::tune::test
