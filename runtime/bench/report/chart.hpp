// A chart with two logarithmic axes as SVG.
#pragma once

#include <string>
#include <vector>

namespace flashdma_bwd::bench {

enum class LineStyle { none, solid, dashed, dotted };
enum class Shape { none, circle, square, diamond, triangle };

struct Mark {
  double x = 0, y = 0;  ///< both more than 0
  std::string label;    ///< shown where the pointer rests on the mark; empty: none
};

struct Series {
  std::string label;  ///< in the legend; empty: not there
  int color = 0;      ///< 0: of the text; 1 ... kChartColors
  LineStyle line = LineStyle::none;
  Shape shape = Shape::none;
  bool hollow = false;
  bool begins_line = false;  ///< of the legend
  std::vector<Mark> marks;
};
inline constexpr int kChartColors = 3;

struct Chart {
  std::string title;
  std::string description;  ///< for those who do not see it
  std::string x_label, y_label;
  std::vector<Series> series;  ///< at least one mark in all; the first is drawn on top
  int width = 760, height = 420;
};

/// Ticks of a logarithmic axis, in order: 1, 2 and 5 times powers of ten, from `low` or less to `high` or more; two at
/// least.
std::vector<double> logarithmic_ticks(double low, double high);

/// "0.05", "2000": without exponents and superfluous zeros.
std::string tick_text(double value);

/// Rules for the classes that charts use, light and dark.
std::string chart_style();

/// An <svg> element for a page that has `chart_style()`.
std::string chart_element(const Chart& chart);

/// A file by itself: with its style and an opaque background, so that it is legible wherever it is put; dark where the
/// reader prefers that.
std::string chart_file(const Chart& chart);

}  // namespace flashdma_bwd::bench
