// Charts as SVG. See chart.hpp.
#include "report/chart.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <utility>

#include "report/html.hpp"

namespace flashdma_bwd::bench {
namespace {

constexpr double kLeft = 62, kRight = 22, kBottom = 50;
constexpr double kTitleBaseline = 24, kLegendTop = 46, kLegendLine = 20;
constexpr double kSample = 26;      // length of a legend entry's line
constexpr double kCharacter = 6.5;  // width of one at 12 px, on the safe side

std::string px(double value) {
  return formatted("%.1f", value);
}

/// One axis: ticks, and where a value lies.
class Scale {
 public:
  Scale(std::vector<double> ticks, double begin, double end) : ticks_(std::move(ticks)), begin_(begin), end_(end) {}
  double at(double value) const {
    const double low = std::log(ticks_.front()), high = std::log(ticks_.back());
    return begin_ + (end_ - begin_) * (std::log(value) - low) / (high - low);
  }
  /// Those with a line and a number: where there are many, powers of ten.
  std::vector<double> shown_ticks() const {
    std::vector<double> shown;
    for (const double tick : ticks_)
      if (ticks_.size() <= kMostTicks || is_power_of_ten(tick)) shown.push_back(tick);
    return shown;
  }

 private:
  static constexpr std::size_t kMostTicks = 11;
  static bool is_power_of_ten(double tick) {
    const double power = std::log10(tick);
    return std::fabs(power - std::round(power)) < 1e-9;
  }
  std::vector<double> ticks_;
  double begin_, end_;
};

Scale scale_of(const Chart& chart, double Mark::*coordinate, double begin, double end) {
  double low = std::numeric_limits<double>::max(), high = 0;
  for (const Series& series : chart.series)
    for (const Mark& mark : series.marks) {
      low = std::min(low, mark.*coordinate);
      high = std::max(high, mark.*coordinate);
    }
  return {logarithmic_ticks(low, high), begin, end};
}

struct LegendEntry {
  const Series* series;
  double x, y;
};

// Entries side by side, in as many lines as they need.
std::vector<LegendEntry> legend_of(const Chart& chart, double& bottom) {
  std::vector<LegendEntry> entries;
  double x = kLeft, y = kLegendTop;
  for (const Series& series : chart.series) {
    if (series.label.empty()) continue;
    const double width = kSample + 8 + kCharacter * static_cast<double>(series.label.size()) + 18;
    if (x > kLeft && (series.begins_line || x + width > chart.width - kRight)) {
      x = kLeft;
      y += kLegendLine;
    }
    entries.push_back({&series, x, y});
    x += width;
  }
  bottom = entries.empty() ? kTitleBaseline : y;
  return entries;
}

std::string color_class(const Series& series) {
  return "c-" + std::to_string(series.color);
}

std::string line_class(const Series& series) {
  return "c-line " + color_class(series) +
         (series.line == LineStyle::dashed   ? " c-dashed"
          : series.line == LineStyle::dotted ? " c-dotted"
                                             : "");
}

std::string shape_element(const Series& series, double x, double y, const std::string& label) {
  const std::string attributes = " class=\"c-mark " + color_class(series) + (series.hollow ? " c-hollow" : "") + '"';
  const auto polygon = [&](const std::vector<std::pair<double, double>>& corners) {
    std::string points;
    for (const auto& [dx, dy] : corners) points += (points.empty() ? "" : " ") + px(x + dx) + ',' + px(y + dy);
    return "<polygon points=\"" + points + '"' + attributes;
  };
  std::string element;
  switch (series.shape) {
    case Shape::none:
      return {};
    case Shape::circle:
      element = "<circle cx=\"" + px(x) + "\" cy=\"" + px(y) + "\" r=\"4\"" + attributes;
      break;
    case Shape::square:
      element = polygon({{-3.6, -3.6}, {3.6, -3.6}, {3.6, 3.6}, {-3.6, 3.6}});
      break;
    case Shape::diamond:
      element = polygon({{0, -5.2}, {5.2, 0}, {0, 5.2}, {-5.2, 0}});
      break;
    case Shape::triangle:
      element = polygon({{0, -5}, {4.8, 3.6}, {-4.8, 3.6}});
      break;
  }
  return element + (label.empty() ? "/>\n"
                                  : "><title>" + escaped(label) + "</title></" +
                                        (series.shape == Shape::circle ? "circle" : "polygon") + ">\n");
}

std::string text_element(double x, double y, const char* anchor, const char* name, const std::string& text) {
  return "<text x=\"" + px(x) + "\" y=\"" + px(y) + "\" text-anchor=\"" + anchor + "\" class=\"" + name + "\">" +
         escaped(text) + "</text>\n";
}

std::string line_element(double x1, double y1, double x2, double y2, const std::string& name) {
  return "<line x1=\"" + px(x1) + "\" y1=\"" + px(y1) + "\" x2=\"" + px(x2) + "\" y2=\"" + px(y2) + "\" class=\"" +
         name + "\"/>\n";
}

std::string legend_element(const LegendEntry& entry) {
  const Series& series = *entry.series;
  std::string text;
  const double middle = entry.y - 4;
  if (series.line != LineStyle::none)
    text += line_element(entry.x, middle, entry.x + kSample, middle, line_class(series));
  text += shape_element(series, entry.x + kSample / 2, middle, "");
  return text + text_element(entry.x + kSample + 8, entry.y, "start", "c-text", series.label);
}

std::string axes(const Chart& chart, const Scale& x, const Scale& y, double top, double bottom) {
  std::string text;
  for (const double tick : x.shown_ticks()) {
    text += line_element(x.at(tick), top, x.at(tick), bottom, "c-grid");
    text += text_element(x.at(tick), bottom + 17, "middle", "c-tick", tick_text(tick));
  }
  for (const double tick : y.shown_ticks()) {
    text += line_element(kLeft, y.at(tick), chart.width - kRight, y.at(tick), "c-grid");
    text += text_element(kLeft - 7, y.at(tick) + 4, "end", "c-tick", tick_text(tick));
  }
  text += line_element(kLeft, bottom, chart.width - kRight, bottom, "c-axis");
  text += text_element((kLeft + chart.width - kRight) / 2, chart.height - 12, "middle", "c-text", chart.x_label);
  const double middle = (top + bottom) / 2;
  return text + "<text transform=\"translate(15," + px(middle) +
         ") rotate(-90)\" text-anchor=\"middle\" class=\"c-text\">" + escaped(chart.y_label) + "</text>\n";
}

std::string series_element(const Series& series, const Scale& x, const Scale& y) {
  std::string text;
  if (series.line != LineStyle::none) {
    std::string points;
    for (const Mark& mark : series.marks)
      points += (points.empty() ? "" : " ") + px(x.at(mark.x)) + ',' + px(y.at(mark.y));
    text += "<polyline points=\"" + points + "\" class=\"" + line_class(series) + "\"/>\n";
  }
  for (const Mark& mark : series.marks) text += shape_element(series, x.at(mark.x), y.at(mark.y), mark.label);
  return text;
}

std::string contents(const Chart& chart) {
  double top = 0;
  const std::vector<LegendEntry> legend = legend_of(chart, top);
  top += 18;
  const double bottom = chart.height - kBottom;
  const Scale x = scale_of(chart, &Mark::x, kLeft, chart.width - kRight);
  const Scale y = scale_of(chart, &Mark::y, bottom, top);
  std::string text = "<title>" + escaped(chart.title) + "</title>\n<desc>" + escaped(chart.description) + "</desc>\n";
  text += text_element(kLeft, kTitleBaseline, "start", "c-title", chart.title);
  for (const LegendEntry& entry : legend) text += legend_element(entry);
  text += axes(chart, x, y, top, bottom);
  for (auto series = chart.series.rbegin(); series != chart.series.rend(); ++series)
    text += series_element(*series, x, y);
  return text;
}

std::string opening(const Chart& chart, const char* attributes) {
  const std::string width = std::to_string(chart.width), height = std::to_string(chart.height);
  return "<svg " + std::string(attributes) + " viewBox=\"0 0 " + width + ' ' + height + "\" width=\"" + width +
         "\" height=\"" + height + "\" role=\"img\" aria-label=\"" + escaped(chart.title) + "\">\n";
}

}  // namespace

std::vector<double> logarithmic_ticks(double low, double high) {
  std::vector<double> ticks;
  const int first = static_cast<int>(std::floor(std::log10(low))) - 1;
  const int last = static_cast<int>(std::ceil(std::log10(high))) + 1;
  for (int power = first; power <= last; ++power)
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double tick = factor * std::pow(10.0, power);
      if (tick <= low) ticks.clear();  // the one before was not needed
      if (ticks.size() < 2 || ticks.back() < high) ticks.push_back(tick);
    }
  return ticks;
}

std::string tick_text(double value) {
  const int decimals = std::max(0, -static_cast<int>(std::floor(std::log10(value) + 1e-9)));
  char text[64];
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

// Colours are written out, not variables: not every program that draws SVG knows those.
std::string chart_style() {
  return R"(.c-surface{fill:#fff}
.c-title,.c-text,.c-tick{font-family:system-ui,-apple-system,"Segoe UI",Roboto,"Liberation Sans",sans-serif;fill:#1c2024}
.c-title{font-size:15px;font-weight:600}.c-text{font-size:12px}.c-tick{font-size:11px;fill:#596067;font-variant-numeric:tabular-nums}
.c-grid{stroke:#e4e7ea;stroke-width:1}.c-axis{stroke:#8b939b;stroke-width:1}
.c-line{fill:none;stroke-width:2;stroke-linejoin:round}.c-dashed{stroke-dasharray:7 4}.c-dotted{stroke-dasharray:1.5 4;stroke-linecap:round}
.c-mark{stroke-width:1.6}
.c-line.c-0{stroke:#596067}.c-line.c-1{stroke:#1f6fc4}.c-line.c-2{stroke:#c2500f}.c-line.c-3{stroke:#7a45b8}
.c-mark.c-0{stroke:#596067;fill:#596067}.c-mark.c-1{stroke:#1f6fc4;fill:#1f6fc4}.c-mark.c-2{stroke:#c2500f;fill:#c2500f}.c-mark.c-3{stroke:#7a45b8;fill:#7a45b8}
.c-mark.c-hollow{fill:#fff}
@media (prefers-color-scheme:dark){
.c-surface{fill:#15181b}.c-title,.c-text{fill:#e6e9ec}.c-tick{fill:#a3abb3}.c-grid{stroke:#2b3036}.c-axis{stroke:#78818a}
.c-line.c-0{stroke:#a3abb3}.c-line.c-1{stroke:#5ea8f2}.c-line.c-2{stroke:#f08a4b}.c-line.c-3{stroke:#b78cec}
.c-mark.c-0{stroke:#a3abb3;fill:#a3abb3}.c-mark.c-1{stroke:#5ea8f2;fill:#5ea8f2}.c-mark.c-2{stroke:#f08a4b;fill:#f08a4b}.c-mark.c-3{stroke:#b78cec;fill:#b78cec}
.c-mark.c-hollow{fill:#15181b}
}
)";
}

std::string chart_element(const Chart& chart) {
  return opening(chart, "class=\"chart\"") + contents(chart) + "</svg>\n";
}

std::string chart_file(const Chart& chart) {
  return opening(chart, "xmlns=\"http://www.w3.org/2000/svg\"") + "<style>\n" + chart_style() + "</style>\n" +
         "<rect width=\"100%\" height=\"100%\" class=\"c-surface\"/>\n" + contents(chart) + "</svg>\n";
}

}  // namespace flashdma_bwd::bench
