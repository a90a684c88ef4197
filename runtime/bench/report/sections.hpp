// The sections of a report: what each view shows, as HTML.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "report/analysis.hpp"
#include "report/predictions.hpp"

namespace flashdma_bwd::bench {

struct Section {
  std::string id;  ///< in the page, unique
  std::string heading;
  std::string html;
};

/// Environment and ceilings, rows that deserve tuning, the chart, and the views by configuration, by problem and flat.
/// `number` tells the ids of one GPU's sections from another's; `several`: headings name the GPU.
void add_result_sections(const Analysis& analysis, std::size_t number, bool several, std::vector<Section>& sections);

/// What each captured problem would run, and by row.
void add_capture_sections(const CaptureAnalysis& capture, std::size_t number, std::vector<Section>& sections);

/// Two entries of a list of definitions: each ceiling and its source, or where to get it.
std::string ceilings_html(const Ceilings& ceilings);

/// What the floor of a problem is.
inline constexpr const char* kFloorDefinition =
    "<p>The floor of a problem is the longer of two times: its floating-point operations (10 · active pairs · d) at a "
    "dense ceiling, and its bytes (each input read, each output written, once) at a copy's bandwidth.</p>\n";

}  // namespace flashdma_bwd::bench
