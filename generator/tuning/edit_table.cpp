// Lines in, lines out; and the proof that the outcome is a valid table with the rows that were meant.
#include "tuning/edit_table.hpp"

#include <algorithm>
#include <set>
#include <string_view>
#include <vector>

#include "config/read.hpp"
#include "validation/coverage.hpp"
#include "validation/validate.hpp"

namespace flashdma_bwd::generator {
namespace {

/// Lines with their ends.
std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    lines.push_back(text.substr(0, end == std::string_view::npos ? end : end + 1));
    text.remove_prefix(lines.back().size());
  }
  return lines;
}

/// The rows of a table as it will be, each with the number of its line in the old text, or 0.
struct PlannedRow {
  When when;
  TileConfig use;
  int line = 0;
};

std::vector<PlannedRow> planned_rows(const Table& table, std::span<const TunedRow> tuned) {
  std::vector<PlannedRow> rows;
  std::set<int> done;
  for (const TableRow& row : table.rows) {
    if (done.insert(row.when.head_dim).second)
      for (const TunedRow& fresh : tuned)
        if (fresh.when.head_dim == row.when.head_dim) rows.push_back({fresh.when, fresh.use, 0});
    rows.push_back({row.when, row.use, row.at.line});
  }
  return rows;
}

/// Rows that those before them hide are left out.
std::vector<PlannedRow> reachable(std::vector<PlannedRow> rows) {
  Table table;
  for (const PlannedRow& row : rows) table.rows.emplace_back().when = row.when;
  const Coverage coverage = cover(table);
  std::vector<PlannedRow> result;
  for (std::size_t i = 0; i < rows.size(); ++i)
    if (!coverage.decided[i].empty()) result.push_back(rows[i]);
  return result;
}

bool begins_row(std::string_view line) {
  const std::size_t first = line.find_first_not_of(' ');
  return first != std::string_view::npos && line[first] == '-';
}

bool is_blank_or_comment(std::string_view line) {
  const std::size_t first = line.find_first_not_of(" \t\r\n");
  return first == std::string_view::npos || line[first] == '#';
}

/// Whether the row at a 1-based line is all of that line, and nothing of it comes after.
bool is_one_line(const std::vector<std::string_view>& lines, int line) {
  const auto at = static_cast<std::size_t>(line);
  return begins_row(lines[at - 1]) && (at == lines.size() || begins_row(lines[at]) || is_blank_or_comment(lines[at]));
}

/// Where `use:` begins in a line, or 0.
std::size_t use_column(std::string_view line) {
  const std::size_t at = line.find(" use: {");
  return at == std::string_view::npos ? 0 : at + 1;
}

std::string indentation(std::string_view line) {
  return std::string(line.substr(0, line.find_first_not_of(' ')));
}

/// What stands behind the row of a line: a comment, the line's end. Braces in quotes are part of texts; quotes begin
/// where a text does, for others are part of one.
std::string_view behind_row(std::string_view line) {
  int depth = 0;
  char quote = 0, before = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (quote != 0) {
      const bool escapes = quote == '"' ? c == '\\' : c == quote && i + 1 < line.size() && line[i + 1] == quote;
      if (escapes)
        ++i;
      else if (c == quote)
        quote = 0;
    } else if ((c == '"' || c == '\'') && std::string_view(":,{[").find(before) != std::string_view::npos) {
      quote = c;
    } else if (c == '{') {
      ++depth;
    } else if (c == '}' && --depth == 0) {
      return line.substr(i + 1);
    }
    if (c != ' ') before = c;
  }
  return {};
}

/// The line of a row that measurements back.
std::string measured_line(std::string_view line, const TunedRow& row, const MeasuredWhere& where) {
  const std::string indent = indentation(line);
  return indent + row_yaml(row, where, use_column(line.substr(indent.size()))) + std::string(behind_row(line));
}

std::string compose(const std::string& text, const Table& table, const std::vector<PlannedRow>& rows,
                    std::span<const TunedRow> tuned, std::span<const RowEvidence> evidence,
                    const MeasuredWhere& where) {
  const std::vector<std::string_view> lines = lines_of(text);
  std::set<int> old_rows, kept;
  for (const TableRow& row : table.rows) old_rows.insert(row.at.line);
  for (const PlannedRow& row : rows) kept.insert(row.line);
  std::string result;
  std::set<int> done;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const int number = static_cast<int>(i) + 1;
    if (old_rows.contains(number)) {
      const auto row = std::ranges::find_if(table.rows, [&](const TableRow& r) { return r.at.line == number; });
      const int head_dim = row->when.head_dim;
      const std::string_view end = lines[i].ends_with("\r\n") ? "\r\n" : "\n";
      if (done.insert(head_dim).second)
        for (const TunedRow& fresh : tuned)
          if (fresh.when.head_dim == head_dim &&
              std::ranges::any_of(rows, [&](const PlannedRow& r) { return r.line == 0 && r.when == fresh.when; })) {
            const std::string indent = indentation(lines[i]);
            result += indent + row_yaml(fresh, where, use_column(lines[i].substr(indent.size())));
            result += end;
          }
      if (!kept.contains(number)) continue;
      const auto backed = std::ranges::find_if(evidence, [&](const RowEvidence& each) {
        return each.row->at.line == number && each.backing == Backing::backed;
      });
      if (backed != evidence.end()) {
        result += measured_line(lines[i], backed->record, where);
        continue;
      }
    }
    result += lines[i];
  }
  return result;
}

bool says_what_was_planned(const Table& table, const std::vector<PlannedRow>& rows) {
  return std::ranges::equal(table.rows, rows, [](const TableRow& row, const PlannedRow& planned) {
    return row.when == planned.when && row.use == planned.use;
  });
}

}  // namespace

std::optional<Table> edit_table(const SourceFile& source, const Table& table, const ArchitectureSpec& spec,
                                std::span<const TunedRow> added, std::span<const RowEvidence> evidence,
                                const MeasuredWhere& where, SourceFile& edited, Diagnostics& diagnostics) {
  edited = source;
  const std::size_t before = diagnostics.size();
  const std::vector<std::string_view> lines = lines_of(source.text);
  for (const TableRow& row : table.rows)
    if (!is_one_line(lines, row.at.line))
      diagnostics.add(
          Rule::row_layout, row.at, "the row is not one line, so that it cannot be edited",
          {"write it as `- {when: {...}, use: {...}, derived: \"...\"}` in one line, as the other tables do"});
  if (diagnostics.size() != before) return std::nullopt;

  const std::vector<PlannedRow> rows = reachable(planned_rows(table, added));
  edited.text = compose(source.text, table, rows, added, evidence, where);
  std::optional<Table> result = read_table(edited, diagnostics);
  if (!result || diagnostics.size() != before) return std::nullopt;
  validate_resources(*result, spec, diagnostics);
  validate_coverage(*result, diagnostics);
  if (diagnostics.size() == before && !says_what_was_planned(*result, rows))
    diagnostics.add(Rule::row_layout, result->rows_at, "the edited table does not say what it was meant to say",
                    {"write each row in one line that begins with `- {when:`"});
  if (diagnostics.size() != before) return std::nullopt;
  return result;
}

}  // namespace flashdma_bwd::generator
