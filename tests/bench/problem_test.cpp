// Problems as text: what is printed is parsed to the same, and what is wrong is named.
#include "problem.hpp"

#include <cstdlib>
#include <set>

#include "support/catch.hpp"

using namespace flashdma_bwd::bench;

TEST_CASE("a problem's text form is parsed and printed symmetrically") {
  for (const char* text :
       {"b=1 h=16 hk=4 d=128 s=8192 causal bias=key mask=topw:1024", "b=8 h=32 d=64 s=2048",
        "b=2 h=4 d=96 sq=1 sk=333 fp16", "b=1 h=2 hk=1 d=64 s=256 deterministic softcap=30 bias=tile mask=random:0.5",
        "b=1 h=2 d=64 s=64 mask=keys:0.25", "b=1 h=2 d=64 s=64 causal mask=window:16",
        "b=1 h=2 d=64 s=64 mask=documents:20", "b=1 h=2 d=64 s=64 causal window=16",
        "b=1 h=2 d=64 s=64 mask=blocks:0.1", "b=3 h=2 d=64 s=64 causal packed",
        "b=1 h=2 d=64 s=64 causal mask=topw:16 encoding=intervals", "b=1 h=2 d=64 s=64 mask=random:0.5 encoding=bits",
        "b=1 h=2 d=64 s=64 mask=keys:0.5 encoding=keys", "b=1 h=2 d=64 s=64 mask=blocks:0.5 encoding=blocks"}) {
    INFO(text);
    Problem problem;
    std::string error;
    REQUIRE(parse_problem(text, problem, error));
    CHECK(problem_text(problem) == text);
  }
}

TEST_CASE("the order of words does not matter") {
  Problem first, second;
  std::string error;
  REQUIRE(parse_problem("hk=2 h=8 sk=64 s=32 d=64 b=3", first, error));
  REQUIRE(parse_problem("b=3 h=8 hk=2 d=64 sq=32 sk=64", second, error));
  CHECK(problem_text(first) == problem_text(second));
  CHECK(first.heads_kv == 2);
  CHECK(first.seqlen_k == 64);
}

TEST_CASE("a word that is no part of a problem is named") {
  for (const char* word : {"b=0", "h=-1", "d=x", "s=12q", "causal=1", "mask=topw", "mask=topw:0", "mask=random:1.5",
                           "mask=window:0", "mask=documents", "mask=blocks:2", "encoding=byte", "bias=row", "k=3"}) {
    Problem problem;
    std::string error;
    INFO(word);
    CHECK_FALSE(parse_problem(std::string("b=1 ") + word, problem, error));
    CHECK(error.find("`" + std::string(word) + "`") != std::string::npos);
  }
}

TEST_CASE("a window without causality, or beside a mask, is refused") {
  for (const char* text : {"window=16", "causal window=16 mask=topw:4"}) {
    Problem problem;
    std::string error;
    INFO(text);
    CHECK_FALSE(parse_problem(text, problem, error));
    CHECK(error ==
          "window=16 is a limit of causal problems without a mask: add causal, or give the mask as mask=window:16");
  }
}

TEST_CASE("a window of all queries is refused") {
  Problem problem;
  std::string error;
  CHECK_FALSE(parse_problem("s=64 causal window=64", problem, error));
  CHECK(error == "window=64 leaves all of 64 queries: leave it out");
}

TEST_CASE("heads that KV heads do not divide are refused") {
  Problem problem;
  std::string error;
  CHECK_FALSE(parse_problem("h=6 hk=4", problem, error));
  CHECK(error == "h=6 must be a multiple of hk=4");
}

TEST_CASE("encodings that cannot express the mask are refused") {
  for (const char* text : {"mask=random:0.5 encoding=intervals", "mask=topw:4 encoding=keys",
                           "mask=window:4 encoding=blocks", "encoding=bits"}) {
    Problem problem;
    std::string error;
    INFO(text);
    CHECK_FALSE(parse_problem(text, problem, error));
    CHECK(error.find("cannot express this mask") != std::string::npos);
  }
}

TEST_CASE("dense FLOPs count five products of b h sq sk d, half when causal") {
  Problem problem;
  std::string error;
  REQUIRE(parse_problem("b=2 h=3 d=64 sq=10 sk=20", problem, error));
  CHECK(problem.dense_flops() == 5 * 2.0 * (2 * 3) * 10 * 20 * 64);
  problem.causal = true;
  CHECK(problem.dense_flops() == 5.0 * (2 * 3) * 10 * 20 * 64);
}

TEST_CASE("the dense set has 16K tokens and h d within half a head of 2048 in every problem, and no problem twice") {
  std::set<std::string> texts;
  for (const Problem& problem : problem_set("dense")) {
    INFO(problem_text(problem));
    CHECK(problem.batch * problem.seqlen_q == 16384);
    CHECK(std::abs(problem.heads * problem.head_dim - 2048) <= problem.head_dim / 2);
    CHECK(texts.insert(problem_text(problem)).second);
  }
  CHECK(texts.size() == 5 * 3 * 2);
}

TEST_CASE("every named set has problems and an unknown one has none") {
  for (const std::string_view name : kSetNames) {
    INFO(std::string(name));
    CHECK_FALSE(problem_set(name).empty());
  }
  CHECK(problem_set("none").empty());
}
