// Pieces of an HTML page. See html.hpp.
#include "report/html.hpp"

#include <algorithm>
#include <cstdio>

namespace flashdma_bwd::bench {
namespace {

// Fields with fewer characters keep them on one line.
constexpr std::size_t kLongestShortText = 20;
constexpr std::size_t kLongestShortName = 32;

std::string class_of(const Column& column, const Cell& cell) {
  const std::string names =
      (column.numeric ? "number" : "") + (cell.css.empty() ? "" : (column.numeric ? " " : "") + cell.css);
  return names.empty() ? names : " class=\"" + names + '"';
}

}  // namespace

std::string escaped(std::string_view text) {
  std::string result;
  for (const char c : text) {
    if (c == '&')
      result += "&amp;";
    else if (c == '<')
      result += "&lt;";
    else if (c == '>')
      result += "&gt;";
    else if (c == '"')
      result += "&quot;";
    else if (c == '\'')
      result += "&#39;";
    else
      result += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? ' ' : c;
  }
  return result;
}

std::string formatted(const char* format, double value) {
  char text[64];
  std::snprintf(text, sizeof text, format, value);
  return text;
}

std::string breakable(std::string_view name) {
  std::string result;
  while (!name.empty()) {
    const std::size_t end = std::min(name.find_first_of("_/"), name.size() - 1) + 1;
    result += escaped(name.substr(0, end)) + (end < name.size() ? "<wbr>" : "");
    name.remove_prefix(end);
  }
  return result;
}

Cell text_cell(std::string_view text) {
  return {escaped(text), 0, 0, text.size() <= kLongestShortText ? "short" : ""};
}

Cell name_cell(std::string_view name) {
  const bool is_short = name.size() <= kLongestShortName;
  return {"<code>" + (is_short ? escaped(name) : breakable(name)) + "</code>", 0, 0, is_short ? "short" : "long"};
}

Cell problem_cell(std::string_view text) {
  return {"<code>" + escaped(text) + "</code>", 0, 0, "long"};
}

Cell number_cell(const char* format, double value) {
  return {formatted(format, value), value};
}

Cell share_cell(double value) {
  return {formatted("%.1f", 100 * value), value, std::clamp(value, 0.0, 1.0)};
}

Cell no_cell() {
  return {"<span class=\"none\">–</span>", -1};
}

std::string Table::html() const {
  std::string text =
      "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"" + escaped(caption_) + "\">\n<table>\n";
  text += "<caption>" + escaped(caption_) + "</caption>\n<thead><tr>";
  for (const Column& column : columns_)
    text += std::string("<th scope=\"col\"") + (column.numeric ? " class=\"number\"" : "") +
            (column.explanation.empty() ? "" : " title=\"" + escaped(column.explanation) + '"') + '>' +
            escaped(column.heading) + "</th>";
  text += "</tr></thead>\n<tbody>\n";
  for (const std::vector<Cell>& row : rows_) {
    text += "<tr>";
    for (std::size_t i = 0; i < row.size(); ++i) {
      const char* tag = i == 0 ? "th" : "td";
      text += std::string("<") + tag + (i == 0 ? " scope=\"row\"" : "") + class_of(columns_[i], row[i]);
      if (columns_[i].numeric) text += " data-key=\"" + formatted("%.9g", row[i].key) + '"';
      if (row[i].bar > 0) text += " style=\"--bar:" + formatted("%.2f", 100 * row[i].bar) + "%\"";
      text += '>' + row[i].html + "</" + tag + '>';
    }
    text += "</tr>\n";
  }
  return text + "</tbody>\n</table>\n</div>\n";
}

}  // namespace flashdma_bwd::bench
