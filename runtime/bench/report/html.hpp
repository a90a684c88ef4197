// Pieces of an HTML page: escaped text and tables.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flashdma_bwd::bench {

/// Text as it stands in HTML or SVG, between tags or in an attribute in double quotes. Control characters become
/// spaces.
std::string escaped(std::string_view text);

/// printf of one number.
std::string formatted(const char* format, double value);

/// A name that may be broken behind each underscore and slash.
std::string breakable(std::string_view name);

struct Column {
  std::string heading;
  bool numeric = false;
  std::string explanation = {};  ///< shown where the pointer rests on the heading
};

/// The contents of one field of a table.
struct Cell {
  std::string html;
  double key = 0;        ///< what a numeric column is sorted by
  double bar = 0;        ///< 0 ... 1: drawn below the number
  std::string css = {};  ///< class of the style sheet
};
Cell text_cell(std::string_view text);
/// Of a kernel, a row, a file.
Cell name_cell(std::string_view name);
/// Of a problem.
Cell problem_cell(std::string_view text);
Cell number_cell(const char* format, double value);
/// value * 100 with one decimal, and a bar as long as the value.
Cell share_cell(double value);
/// Stands for what is not known.
Cell no_cell();

class Table {
 public:
  Table(std::string caption, std::vector<Column> columns)
      : caption_(std::move(caption)), columns_(std::move(columns)) {}
  /// As many cells as columns; the first is the row's heading.
  void add(std::vector<Cell> cells) { rows_.push_back(std::move(cells)); }
  bool empty() const { return rows_.empty(); }
  std::string html() const;

 private:
  std::string caption_;
  std::vector<Column> columns_;
  std::vector<std::vector<Cell>> rows_;
};

}  // namespace flashdma_bwd::bench
