// Problems as lines of text, and files of them.
#include "selection/problem_text.hpp"

#include <limits>
#include <string>
#include <utility>

#include "support/catch.hpp"
#include "tables.hpp"

namespace flashdma_bwd::testing {
namespace {

/// Parts of a text that is complete.
constexpr const char* kDense = "bf16 d=128 b=2 h=16 hk=4 sq=4096 sk=4096";

void check_refused(const std::string& text, const std::string& reason) {
  const Parsed<Problem> parsed = parse_problem_text(text);
  INFO(text << ": " << parsed.error);
  CHECK_FALSE(parsed);
  CHECK(parsed.error == reason);
}

std::string dense_and(const std::string& part) {
  return std::string(kDense) + ' ' + part;
}

std::string file_error(const std::string& text) {
  const auto parsed = parse_problem_file(text, "mine.txt");
  CHECK_FALSE(parsed);
  return parsed.error;
}

}  // namespace

TEST_CASE("problems of the whole domain round trip as text") {
  ProblemSource source(5);
  for (int i = 0; i < 5000; ++i) {
    const Problem problem = source.next();
    const std::string text = problem_text(problem);
    const Parsed<Problem> parsed = parse_problem_text(text);
    INFO(text << ": " << parsed.error);
    REQUIRE(parsed);
    CHECK(*parsed.value == problem);
    CHECK(problem_text(*parsed.value) == text);
    CHECK(ProblemTextBuffer(problem).view() == text);
  }
}

TEST_CASE("a problem's text has the documented form") {
  Problem problem = ordinary_problem();
  CHECK(problem_text(problem) == kDense);
  problem.heads_kv = problem.heads;
  problem.data_type = DataType::fp16;
  problem.causal = problem.deterministic = problem.softcap = problem.bias_copies = problem.masked = true;
  problem.bias = BiasKind::tile;
  problem.layout = KeyLayout::reordered;
  problem.mask_density = 120;
  CHECK(problem_text(problem) ==
        "fp16 d=128 b=2 h=16 sq=4096 sk=4096 causal deterministic softcap bias=tile bias_copies masked "
        "layout=reordered density=120");
  problem = ordinary_problem();
  problem.causal = true;
  problem.window = 1024;
  CHECK(problem_text(problem) == std::string(kDense) + " window=1024 causal");
}

TEST_CASE("a problem is read in any order, with defaults spelled out and blanks between its parts") {
  Problem problem = ordinary_problem();
  problem.causal = problem.masked = true;
  const Parsed<Problem> parsed = parse_problem_text(
      "  density=1000 layout=natural masked causal bias=none  sk=4096 sq=4096 hk=4 h=16 b=2 d=128 bf16 ");
  INFO(parsed.error);
  REQUIRE(parsed);
  CHECK(*parsed.value == problem);
}

TEST_CASE("the longest text fits its buffer") {
  Problem problem;
  problem.head_dim = kMaxHeadDim;
  problem.batch = problem.heads = problem.seqlen_q = problem.seqlen_k = problem.window =
      std::numeric_limits<std::int64_t>::max();
  problem.heads_kv = problem.heads - 1;
  problem.causal = problem.deterministic = problem.softcap = problem.bias_copies = problem.masked = true;
  problem.bias = BiasKind::key_vector;
  problem.layout = KeyLayout::compacted;
  problem.mask_density = 999;
  const ProblemTextBuffer buffer(problem);
  CHECK(buffer.view() == problem_text(problem));
  CHECK(std::string(buffer.c_str()) == problem_text(problem));
}

TEST_CASE("a malformed problem is refused with the reason") {
  check_refused("", "the data type is missing: write `fp16` or `bf16`");
  check_refused("d=128 b=2 h=16 sq=4096 sk=4096", "the data type is missing: write `fp16` or `bf16`");
  check_refused("bf16 b=2 h=16 sq=4096 sk=4096", "`d=<value>` is missing");
  check_refused("bf16 d=128 h=16 sq=4096 sk=4096", "`b=<value>` is missing");
  check_refused("bf16 d=128 b=2 sq=4096 sk=4096", "`h=<value>` is missing");
  check_refused("bf16 d=128 b=2 h=16 sk=4096", "`sq=<value>` is missing");
  check_refused("bf16 d=128 b=2 h=16 sq=4096", "`sk=<value>` is missing");

  check_refused(dense_and("causual"), "`causual` is no part of a problem, did you mean `causal`?");
  check_refused(dense_and("desnity=5"), "`desnity` is no part of a problem, did you mean `density`?");
  check_refused(dense_and("windows=128 causal"), "`windows` is no part of a problem, did you mean `window`?");
  check_refused("fp1 d=128 b=2 h=16 sq=1 sk=1", "`fp1` is no part of a problem, did you mean `fp16`?");
  check_refused(dense_and("x 3"), "`x` is no part of a problem, did you mean `d`?");
  check_refused(dense_and("\tcausal"), "`\tcausal` is no part of a problem, did you mean `causal`?");

  check_refused(dense_and("fp16"), "the data type is given twice");
  check_refused(dense_and("sq=4096"), "`sq` is given twice");
  check_refused(dense_and("causal causal"), "`causal` is given twice");
  check_refused(dense_and("causal=yes"), "`causal` has no value: write `causal`");
  check_refused("bf16=1 d=128 b=2 h=16 sq=1 sk=1", "`bf16` has no value: write `bf16`");
  check_refused(dense_and("masked density"), "`density` needs a value: write `density=<value>`");

  check_refused(dense_and("bias=row"), "bias: `row` is none of `none`, `key_vector`, `tile`");
  check_refused(dense_and("masked layout=packed"), "layout: `packed` is none of `natural`, `compacted`, `reordered`");
  check_refused(dense_and("masked density=1001"),
                "density: `1001` is no number in 0 ... 1000: it counts active pairs per 1000");

  check_refused("bf16 d=128 b=0 h=16 sq=1 sk=1", "b: `0` is no number in 1 ... 2147483647");
  check_refused("bf16 d=128 b=-1 h=16 sq=1 sk=1", "b: `-1` is no number in 1 ... 2147483647");
  check_refused("bf16 d=128 b=01 h=16 sq=1 sk=1", "b: `01` is no number in 1 ... 2147483647");
  check_refused("bf16 d=128 b= h=16 sq=1 sk=1", "b: `` is no number in 1 ... 2147483647");
  check_refused("bf16 d=128 b=1 h=16k sq=1 sk=1", "h: `16k` is no number in 1 ... 2147483647");
  check_refused("bf16 d=128 b=1 h=16 sq=99999999999999999999 sk=1",
                "sq: `99999999999999999999` is no number in 1 ... 2147483647");
  check_refused("bf16 d=128 b=1 h=16 hk=3 sq=1 sk=1",
                "h=16 is no multiple of hk=3: each KV head serves the same number of heads");
  check_refused("bf16 d=128 b=2147483647 h=2147483647 sq=1 sk=2147483647",
                "b, h and the longer of sq and sk have a product that 64 bits cannot hold");
  for (const std::string head_dim : {"0", "4", "60", "264", "128.0", "-8"})
    check_refused("bf16 d=" + head_dim + " b=1 h=1 sq=1 sk=1",
                  "d: `" + head_dim + "` is no multiple of 8 in 8 ... 256");

  check_refused(dense_and("window=128"), "`window` without `causal`, which says that there are limits");
  check_refused(dense_and("window=128 causal masked"),
                "`window` with `masked`, whose density says how many pairs there are");
  check_refused(dense_and("window=0 causal"), "window: `0` is no number in 1 ... 2147483647");
  check_refused(dense_and("window=4096 causal"),
                "window=4096 is no fewer than sq=4096: leave out a window that leaves all queries");
  check_refused(dense_and("bias_copies"), "`bias_copies` without `bias=tile`: no other bias is copied");
  check_refused(dense_and("bias=key_vector bias_copies"), "`bias_copies` without `bias=tile`: no other bias is copied");
  check_refused(dense_and("layout=reordered"), "`layout` without `masked`: it describes a mask");
  check_refused(dense_and("density=1000"), "`density` without `masked`: it describes a mask");
}

TEST_CASE("a problem file gives its problems in order") {
  const std::string dense = kDense;
  const auto parsed = parse_problem_file(
      "flashdma_bwd problems 1\r\n# a comment\n\n" + dense + "\r\n" + dense + " causal\n" + dense, "mine.txt");
  INFO(parsed.error);
  REQUIRE(parsed);
  Problem causal = ordinary_problem();
  causal.causal = true;
  CHECK(*parsed.value == std::vector<Problem>{ordinary_problem(), causal, ordinary_problem()});
  const auto none = parse_problem_file("flashdma_bwd problems 1", "mine.txt");
  REQUIRE(none);
  CHECK(none.value->empty());
}

TEST_CASE("a malformed problem file names the line") {
  const std::string header = "mine.txt:1: the first line must be `flashdma_bwd problems 1`";
  CHECK(file_error("") == header);
  CHECK(file_error("\n") == header);
  CHECK(file_error("flashdma_bwd problems 2\n") == header);
  CHECK(file_error(kDense) == header);
  const std::string start = "flashdma_bwd problems 1\n# a comment\n\n";
  CHECK(file_error(start + "bf16\n") == "mine.txt:4: `d=<value>` is missing");
  CHECK(file_error(start + kDense + "\n" + kDense + " x=4\n").find("mine.txt:5: `x` is no part of a problem") == 0);
  CHECK(file_error(start + std::string(kDense).substr(0, 30)).find("mine.txt:4: ") == 0);
}

}  // namespace flashdma_bwd::testing
