// Reading results and captures: what is there, and every way to be wrong with its place.
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "report/input_files.hpp"
#include "report/located_json.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd::bench;

namespace {

constexpr const char* kResults = R"({
  "benchmark": "backward",
  "backend": "flashdma_bwd",
  "gpu": "NVIDIA H200", "driver": "580.1", "toolkit": "CUDA 13.0", "library": "0.1.0", "table_hash": "12ab", "commit": "abc",
  "ceilings": {"dense_tflops": 570.5, "dense_source": "b=1", "copy_gb_per_s": 4100, "copy_source": "memcpy"},
  "results": [
    {"set": "masked", "problem": "b=1 h=16 hk=4 d=128 s=8192 causal bias=key mask=topw:64", "kernel": "bwd_x",
     "row": "configs/tables/sm90.yaml:27", "ms": 0.2928, "fastest_ms": 0.29, "samples": 20, "tflops": 2347.0,
     "active_fraction": 0.00778, "plan": {"layout": "reordered", "ms": 0.0759, "planned_ms": 0.21658, "masks": 4}},
    {"problem": "b=1 h=2 d=64 s=256", "backend": "pytorch_flash", "ms": 0.1},
    {"problem": "b=1 h=2 d=64 s=512", "failure": "out of memory"}
  ]
}
)";

std::vector<std::string> errors_of(const std::string& text) {
  Inputs inputs;
  std::vector<std::string> errors;
  read_input(text, "in.json", inputs, errors);
  return errors;
}

/// kResults with one text in place of another.
std::string with(const std::string& from, const std::string& to) {
  std::string text = kResults;
  const std::size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

void check_error(const std::string& text, const std::string& expected) {
  const std::vector<std::string> errors = errors_of(text);
  REQUIRE(errors.size() == 1);
  CHECK(errors[0] == expected);
}

}  // namespace

TEST_CASE("results are read as they are written") {
  std::vector<std::string> errors;
  const ResultsFile file = read_results(kResults, "in.json", errors);
  REQUIRE(errors.empty());
  CHECK(file.environment == Environment{"NVIDIA H200", "580.1", "CUDA 13.0", "0.1.0", "12ab", "abc"});
  CHECK(file.ceilings.dense_tflops == 570.5);
  CHECK(file.ceilings.copy_gb_per_s == 4100);
  CHECK(file.ceilings.copy_source == "memcpy");
  REQUIRE(file.measurements.size() == 3);
  const Measurement& first = file.measurements[0];
  CHECK(first.backend == kOwnBackend);
  CHECK(first.set == "masked");
  CHECK(first.problem.top_w == 64);
  CHECK(first.kernel == "bwd_x");
  CHECK(first.row == "configs/tables/sm90.yaml:27");
  CHECK(first.ms == 0.2928);
  CHECK(first.active_fraction == 0.00778);
  REQUIRE(first.plan);
  CHECK(first.plan->planned_ms == 0.21658);
  CHECK(file.measurements[1].backend == "pytorch_flash");
  CHECK_FALSE(file.measurements[1].active_fraction);
  CHECK(file.measurements[2].failure == "out of memory");
}

TEST_CASE("results that are no JSON are refused where they stop being it") {
  check_error("{\n  \"benchmark\": backward\n}", "in.json:2:16: not JSON from `\"benchmark\": b` on");
  const std::string text = kResults;
  check_error(text.substr(0, text.find("0.2928") + 3),
              "in.json:8:53: not JSON: the text ends where more must follow; is the file complete?");
  check_error("{\"benchmark\": \"backward\", \"benchmark\": \"backward\"}",
              "in.json:1:27: \"benchmark\" is given twice");
  check_error("{\"a\": " + std::string(100000, '['), "in.json:1:38: brackets in brackets, more than 32 deep");
}

TEST_CASE("results of another format are refused") {
  check_error("[1, 2]", "in.json:1:1: expected an object with \"benchmark\" and \"results\", not a list");
  check_error(
      "{\"results\": []}",
      "in.json:1:1: not a file of results: \"benchmark\" must be \"backward\", as `flashdma-bench --json` writes it");
  check_error(
      with("\"backward\"", "\"forward\""),
      "in.json:2:16: not a file of results: \"benchmark\" must be \"backward\", as `flashdma-bench --json` writes it");
  check_error("{\"benchmark\": \"backward\"}", "in.json:1:1: \"results\" is missing: a list");
  check_error("name,ms\nx,1\n",
              "in.json:1: neither results, as `flashdma-bench --json` writes them, nor a capture, whose first line is "
              "`flashdma_bwd problems 1`");
  check_error(" \n", "in.json:1: the file is empty");
}

TEST_CASE("members of the wrong type or size are named with their place") {
  check_error(with("0.2928", "\"0.2928\""), "in.json:8:50: \"ms\" must be a number, not a text");
  check_error(with("0.2928", "-1"), "in.json:8:50: \"ms\" must be more than 0 ms");
  check_error(with("0.2928", "1e300"), "in.json:8:50: \"ms\" must be more than 0 ms");
  check_error(with("0.00778", "7.78"), "in.json:9:25: \"active_fraction\" is out of range: a fraction is 0 ... 1");
  check_error(with("\"bwd_x\"", "[]"), "in.json:7:103: \"kernel\" must be a text, not a list");
  check_error(with("\"kernel\": \"bwd_x\",", ""), "in.json:7:5: \"kernel\" is missing: a text");
  check_error(with("\"NVIDIA H200\"", "7"), "in.json:4:10: \"gpu\" must be a text, not a number");
  check_error(with("570.5", "true"), "in.json:5:32: \"dense_tflops\" must be a number, not true or false");
  check_error(with("\"backend\": \"flashdma_bwd\",\n", "\"results\": 3}\n"), "in.json:4:7: not JSON from `\"gpu\"` on");
}

TEST_CASE("problems in results are checked") {
  const std::vector<std::string> errors = errors_of(with("b=1 h=2 d=64 s=512", "b=1 h=2 d=64 t=512"));
  REQUIRE(errors.size() == 1);
  CHECK(errors[0].starts_with("in.json:11:17: \"problem\": `t=512` is not part of a problem"));
  check_error(with("s=512", "s=99999999999"), "in.json:11:17: \"problem\": a size is more than 2147483647");
}

TEST_CASE("all that is wrong is said at once") {
  std::string text = with("0.2928", "null");
  text.replace(text.find("0.1}"), 3, "false");
  CHECK(errors_of(text).size() == 2);
}

TEST_CASE("captures are files of problems") {
  Inputs inputs;
  std::vector<std::string> errors;
  read_input(
      "flashdma_bwd problems 1\n# a run\nbf16 d=128 b=1 h=16 sq=8192 sk=8192 causal\n\nfp16 d=64 b=2 h=4 sq=1 sk=1\n",
      "run.problems", inputs, errors);
  REQUIRE(errors.empty());
  REQUIRE(inputs.captures.size() == 1);
  REQUIRE(inputs.captures[0].problems.size() == 2);
  CHECK(inputs.captures[0].problems[1].head_dim == 64);
}

TEST_CASE("captures that are damaged are refused with the line") {
  const std::string header = "flashdma_bwd problems 1\n";
  check_error("flashdma_bwd problems 2\n", "in.json:1: the first line must be `flashdma_bwd problems 1`");
  check_error(header + "bf16 d=128 b=1 h=16 sq=81", "in.json:2: `sk=<value>` is missing");
  check_error(header + "bf16 d=128 b=1 h=16 sq=8192 sk=81",
              "in.json:2: the last line has no end, so it may be cut short: complete it with a newline, or remove it");
  const std::vector<std::string> errors = errors_of(header + "\nbf16 d=128 b=1 h=16 sq=8 sk=8 casual\n");
  REQUIRE(errors.size() == 1);
  CHECK(errors[0] == "in.json:3: `casual` is no part of a problem, did you mean `causal`?");
}

TEST_CASE("files that cannot be read are named") {
  std::vector<std::string> errors;
  read_input_files({"no/such/file.json", "."}, errors);
  CHECK(errors == std::vector<std::string>{"no/such/file.json: No such file or directory", ".: a folder, not a file"});
}
