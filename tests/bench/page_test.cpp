// The report's page: structure, figures in their places, and names that would be markup.
#include "report/page.hpp"

#include <algorithm>

#include "report/html.hpp"
#include "results_of.hpp"
#include "selection/problem_text.hpp"
#include "selection/row_text.hpp"

using namespace flashdma_bwd::bench;
using namespace flashdma_bwd::bench::test;

namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
  return found;
}

/// Every element that is opened is closed, in order. Returns what is not.
std::string unbalanced(const std::string& html) {
  std::vector<std::string> open;
  for (std::size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const std::size_t end = html.find_first_of(" >\n/", at + 2);
    const std::string name = html.substr(at + 1, end - at - 1);
    const std::string element = html.substr(at, html.find('>', at) - at + 1);
    if (name == "!DOCTYPE" || name == "meta" || name == "wbr" || name == "br" || element.ends_with("/>")) continue;
    if (name.starts_with('/')) {
      if (open.empty() || open.back() != name.substr(1)) return element;
      open.pop_back();
    } else {
      open.push_back(name);
      if (name == "script" || name == "style") at = html.find("</" + name, at) - 1;
    }
  }
  return open.empty() ? "" : open.back();
}

std::vector<ResultsFile> two_problems() {
  Measurement masked = measurement("b=1 h=2 d=64 s=1024 causal mask=topw:64", "bwd_masked", "t.yaml:2", 0.5);
  masked.plan = PlanFigures{"reordered", 0.1, 0.4};
  return {results_file({measurement("b=1 h=2 d=64 s=1024", "bwd_dense", "t.yaml:1", 2.25), masked,
                        other("b=1 h=2 d=64 s=1024", "pytorch_flash", 4.5)})};
}

std::string page_of(const std::vector<ResultsFile>& files, const Ceilings& ceilings = {1, 1000, "given", "given"}) {
  return report_page(analyse(files, ceilings), {});
}

}  // namespace

TEST_CASE("a page has every view, once, and each heading and caption") {
  const std::string page = page_of(two_problems());
  for (const char* id : {"summary-1", "rows-1", "chart-1", "configurations-1", "problems-1", "flat-1"}) {
    INFO(id);
    CHECK(count(page, "id=\"" + std::string(id) + '"') == 1);
    CHECK(count(page, "href=\"#" + std::string(id) + '"') == 1);
  }
  CHECK(count(page, "<h1>") == 1);
  CHECK(count(page, "<table>") == 5);
  CHECK(count(page, "<caption>") == 5);
  CHECK(unbalanced(page) == "");
}

TEST_CASE("figures stand beside their problems") {
  const std::string page = page_of(two_problems());
  CHECK(contains(page, "580.1"));
  CHECK(contains(page, "1.0 TFLOP/s: given"));
  CHECK(contains(page, "1000 GB/s: given"));
  const std::size_t flat = page.find("id=\"flat-1\"");
  const std::string rows = page.substr(flat);
  // 10 * 2 * 1024 * 1024 * 64 operations at 1 TFLOP/s, and a share of 2.25 of 2.75 ms.
  CHECK(contains(rows, "<code>b=1 h=2 d=64 s=1024</code>"));
  CHECK(contains(rows, ">2.2500</td>"));
  CHECK(contains(rows, ">81.8</td>"));
  CHECK(contains(rows, ">1.3422</td>"));
  CHECK(contains(rows, ">59.7</td>"));
  CHECK(contains(rows, ">100.00</td>"));
  CHECK(count(rows, "topw:64</code>") == 2);  // plan built and given
  const std::string problems = page.substr(page.find("id=\"problems-1\""), flat - page.find("id=\"problems-1\""));
  CHECK(contains(problems, "pytorch_flash, ms"));
  CHECK(contains(problems, ">4.5000</td>"));
  CHECK(contains(problems, ">2.00</td>"));
}

TEST_CASE("active pairs are told of all pairs, whatever hides the others") {
  const auto has = [](const char* problem, const char* percent) {
    const std::string page = page_of({results_file({measurement(problem, "k", "r", 1)})});
    INFO(problem);
    CHECK(contains(page.substr(page.find("id=\"flat-1\"")), percent));
  };
  has("b=1 h=2 d=64 s=1024 causal", ">50.05</td>");
  // 64 keys for each query but the first 63.
  has("b=1 h=2 d=64 s=1024 causal window=64", ">6.06</td>");
}

TEST_CASE("a page fetches nothing") {
  const std::string page = page_of(two_problems());
  CHECK(contains(page, "default-src 'none'"));
  for (const char* part : {"http://", "https://", "url(", "@import", "<link", "<img", " src="}) {
    INFO(part);
    CHECK_FALSE(contains(page, part));
  }
}

TEST_CASE("names that would be markup are text") {
  const std::string hostile = "</code></td><script>alert('x')</script>\"&\n";
  std::vector<ResultsFile> files{results_file({measurement("b=1 h=2 d=64 s=1024", hostile, hostile, 2)}, hostile)};
  files[0].path = files[0].environment.commit = files[0].environment.driver = hostile;
  files[0].ceilings = {1, 1000, hostile, hostile};
  files[0].measurements.push_back(other("b=1 h=2 d=64 s=1024", hostile, 3));
  Measurement failed = measurement("b=1 h=2 d=64 s=1024", "", "", 0);
  failed.problem_text = failed.failure = hostile;
  files[0].measurements.push_back(failed);
  const std::string page = page_of(files, {});
  CHECK(count(page, "<script>") == 1);  // that sorts tables
  CHECK_FALSE(contains(page, "alert('x')"));
  CHECK(contains(page, "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;&amp;"));
  CHECK(unbalanced(page) == "");
}

TEST_CASE("what is not known is said, not made up") {
  std::vector<ResultsFile> files = two_problems();
  files[0].measurements.erase(files[0].measurements.begin());  // what would be a ceiling
  const std::string page = page_of(files, {});
  CHECK(contains(page, "not known, so floors count no operations"));
  CHECK(contains(page, "not known, so floors count no bytes"));
  CHECK_FALSE(contains(page, "id=\"chart-1\""));
  CHECK_FALSE(contains(page, "nan"));
  CHECK_FALSE(contains(page, ">inf"));
  CHECK(unbalanced(page) == "");
}

TEST_CASE("files with nothing but failures, or nothing, make a page") {
  Measurement failed = measurement("b=1 h=2 d=64 s=1024", "", "", 0);
  failed.failure = "out of memory";
  const std::string page = page_of({results_file({failed}), results_file({})}, {});
  CHECK(contains(page, "out of memory"));
  CHECK_FALSE(contains(page, "nan"));
  CHECK(unbalanced(page) == "");
}

TEST_CASE("several GPUs have sections of their own") {
  std::vector<ResultsFile> files = two_problems();
  files.push_back(results_file({measurement("b=1 h=2 d=64 s=1024", "k", "r", 3)}, "NVIDIA A100"));
  const std::string page = page_of(files);
  CHECK(contains(page, "Summary · NVIDIA H200"));
  CHECK(contains(page, "Summary · NVIDIA A100"));
  CHECK(count(page, "id=\"flat-2\"") == 1);
}

TEST_CASE("a capture has rows and floors and no times") {
  flashdma_bwd::TableFile table;
  REQUIRE(
      table
          .read(
              "flashdma_bwd table 1\nsm90 head_dim=128 => ampere_m64n64_w8_s4_kv4_dq2_q1_do1 ; derived: <from> sm80\n",
              "t.rows")
          .empty());
  const Capture capture{"run.problems",
                        {*flashdma_bwd::parse_problem_text("bf16 d=128 b=1 h=16 sq=8192 sk=8192").value}};
  const NamedDevice device = *parse_device("sm90:132").value;
  const std::string page = report_page({}, {predict(capture, device, table.rows(), {500, 4000, "given", "given"})});
  CHECK(contains(page, "Captured problems on sm90:132"));
  CHECK(contains(page, "132 multiprocessors"));
  CHECK(contains(page, "t.rows:2"));
  CHECK(contains(page, "&lt;from&gt; sm80"));
  CHECK(contains(page, ">2.7488</td>"));  // 10 * 16 * 8192^2 * 128 operations at 500 TFLOP/s
  CHECK(contains(page, "none was timed"));
  CHECK_FALSE(contains(page, "id=\"flat-1\""));
  CHECK(unbalanced(page) == "");
  const std::string without = report_page({}, {predict(capture, device, table.rows(), {})});
  CHECK_FALSE(contains(without, ">2.7488</td>"));
  CHECK(contains(without, ">unknown</td>"));
}

TEST_CASE("escaping leaves no character that could end a text or an attribute") {
  CHECK(escaped("a<b>&\"'\n\x01z") == "a&lt;b&gt;&amp;&quot;&#39;  z");
  CHECK(breakable("ab_c/<d") == "ab_<wbr>c/<wbr>&lt;d");
}
