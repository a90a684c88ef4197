// What captured problems would run: devices as text, rows, floors.
#include "report/predictions.hpp"

#include "results_of.hpp"
#include "selection/problem_text.hpp"
#include "selection/row_text.hpp"

using namespace flashdma_bwd::bench;
using namespace flashdma_bwd::bench::test;
using flashdma_bwd::DeviceTraits;

namespace {

constexpr const char* kTable = R"(flashdma_bwd table 1
sm90 head_dim=128 seqlen_k=0..1024 => hopper_m64n128_wg2_q2_do2_ds2_r24c240 ; measured: on an H200
sm90 head_dim=128 => ampere_m64n64_w8_s4_kv4_dq2_q1_do1 ; derived: fits
)";

Capture capture_of(const std::vector<std::string>& texts) {
  Capture capture{"run.problems", {}};
  for (const std::string& text : texts) capture.problems.push_back(*flashdma_bwd::parse_problem_text(text).value);
  return capture;
}

}  // namespace

TEST_CASE("a GPU is a name or its traits") {
  CHECK(parse_device("H200").value->traits == DeviceTraits{90, 132, 232448});
  CHECK(parse_device("rtx4090").value->name == "RTX4090");
  CHECK(parse_device("sm90:114").value->traits == DeviceTraits{90, 114, 232448});
  CHECK(parse_device("sm86:28").value->traits == DeviceTraits{86, 28, 101376});
  CHECK(parse_device("sm87:16:166912").value->traits == DeviceTraits{87, 16, 166912});
  for (const char* text : {"", "H300", "sm90", "sm90:", "sm90:0", "sm:132", "sm90:132:", "sm90:132:1x", "90:132"}) {
    INFO(text);
    const auto device = parse_device(text);
    REQUIRE_FALSE(device);
    CHECK(contains(device.error, "`" + std::string(text) + "` is no GPU: write one of A100"));
  }
}

TEST_CASE("captured problems get the row, the configuration and the floor") {
  flashdma_bwd::TableFile table;
  REQUIRE(table.read(kTable, "t.rows").empty());
  const Capture capture = capture_of({"bf16 d=128 b=1 h=16 sq=8192 sk=8192", "bf16 d=128 b=1 h=16 sq=1024 sk=1024",
                                      "bf16 d=128 b=2 h=16 sq=1024 sk=1024", "bf16 d=64 b=1 h=16 sq=64 sk=64"});
  const CaptureAnalysis analysis = predict(capture, *parse_device("H200").value, table.rows(), {500, 4000, "", ""});
  REQUIRE(analysis.predictions.size() == 4);
  CHECK(analysis.predictions[0].row == "t.rows:3");
  CHECK(analysis.predictions[0].kernel == "bwd_sm90_d128_bf16_ampere_m64n64_w8_s4_kv4_dq2_q1_do1_nobias");
  CHECK(analysis.predictions[0].floor.ms == Approx(10.0 * 16 * 8192 * 8192 * 128 / 500e9));
  CHECK(analysis.predictions[1].row == "t.rows:2");
  CHECK(analysis.predictions[3].kernel.empty());
  CHECK_FALSE(analysis.predictions[3].reason.empty());
  REQUIRE(analysis.rows.size() == 2);
  CHECK(analysis.rows[0].name == "t.rows:3");
  CHECK(analysis.rows[1].count == 2);
  CHECK(analysis.rows[1].kernels.size() == 1);
}
