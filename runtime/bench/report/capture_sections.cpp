// Sections about captured problems, and ceilings. See sections.hpp.
#include "report/html.hpp"
#include "report/sections.hpp"
#include "selection/explain.hpp"
#include "selection/problem_text.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd::bench {
namespace {

std::string row_table(const CaptureAnalysis& capture) {
  Table table("Rows that the captured problems come to, the longest floors first",
              {{"Row"},
               {"Problems", true},
               {"Floors, ms", true, "of its problems together; no times"},
               {"The row is"},
               {"Its reason"},
               {"Configurations"}});
  for (const PredictedRow& row : capture.rows) {
    std::string kernels;
    for (const std::string& kernel : row.kernels) kernels += (kernels.empty() ? "" : "<br>") + name_cell(kernel).html;
    table.add({name_cell(row.name),
               number_cell("%.0f", row.count),
               row.floor_ms > 0 ? number_cell("%.4f", row.floor_ms) : no_cell(),
               text_cell(word(row.row->provenance)),
               text_cell(row.row->provenance_text),
               {kernels}});
  }
  return table.html();
}

std::string problem_table(const CaptureAnalysis& capture) {
  Table table("Captured problems, in the file's order; none was timed",
              {{"Problem"},
               {"GFLOP", true, "of the pairs that are active by the caller's estimate"},
               {"MB", true, "that every such call moves at least"},
               {"Floor, ms", true},
               {"Bound"},
               {"Row"},
               {"Configuration"}});
  for (const Prediction& prediction : capture.predictions) {
    const bool selected = !prediction.kernel.empty();
    table.add({problem_cell(problem_text(prediction.problem)), number_cell("%.2f", prediction.work.flops * 1e-9),
               number_cell("%.2f", prediction.work.bytes.total() * 1e-6),
               prediction.floor.ms > 0 ? number_cell("%.4f", prediction.floor.ms) : no_cell(),
               text_cell(bound_word(prediction.floor.bound)), selected ? name_cell(prediction.row) : no_cell(),
               selected ? name_cell(prediction.kernel) : text_cell(prediction.reason)});
  }
  return table.html();
}

constexpr const char* kAssumptions =
    "<p>A captured problem has no times, and less is known of it than of a benchmark's. Its floor counts what every "
    "such "
    "call has to do: five matrix products over the pairs that causality leaves, times the caller's estimate of the "
    "mask's "
    "density; each tensor read or written once, a bias as if it were broadcast over batch and heads and had no "
    "gradient, "
    "no mask. A window counts as causality.</p>\n";

}  // namespace

std::string ceilings_html(const Ceilings& ceilings) {
  std::string text = "<dt>Dense ceiling</dt><dd>";
  text += ceilings.dense_tflops > 0
              ? formatted("%.1f TFLOP/s: ", ceilings.dense_tflops) + escaped(ceilings.dense_source)
              : "not known, so floors count no operations: give a file of `flashdma-bench roofline --json`, or "
                "--dense-tflops";
  text += "</dd>\n<dt>Copy bandwidth</dt><dd>";
  text += ceilings.copy_gb_per_s > 0
              ? formatted("%.0f GB/s: ", ceilings.copy_gb_per_s) + escaped(ceilings.copy_source)
              : "not known, so floors count no bytes: give a file of `flashdma-bench roofline --json`, or --copy-gbps";
  return text + "</dd>\n";
}

void add_capture_sections(const CaptureAnalysis& capture, std::size_t number, std::vector<Section>& sections) {
  const std::string suffix = std::to_string(number + 1);
  std::string html = "<dl>\n<dt>File</dt><dd>" + name_cell(capture.path).html + "</dd>\n<dt>GPU</dt><dd>" +
                     escaped(capture.device.name) + ": " + escaped(device_text(capture.device.traits)) + "</dd>\n" +
                     ceilings_html(capture.ceilings) + "</dl>\n";
  html += std::string(kFloorDefinition) + kAssumptions;
  if (capture.predictions.empty()) html += "<p>The file has no problems.</p>\n";
  if (!capture.rows.empty()) html += row_table(capture);
  if (!capture.predictions.empty()) html += problem_table(capture);
  sections.push_back({"capture-" + suffix, "Captured problems on " + capture.device.name, html});
}

}  // namespace flashdma_bwd::bench
