// A table row as one line of text, printed and parsed symmetrically.
//
//     sm90 head_dim=128 bias=key_vector,tile causal=yes seqlen_k=0..4096 => ampere_m64n128_w8_s2_kv4_dq2_q2_do2 ;
//     derived: text
//
// Conditions that admit everything are left out. A range is `low..high`, both ends included, or `low..` without an
// upper end. In the text behind `derived:` or `measured:` a newline is written \n and a backslash \\. Where a row
// stands (file and line) is not part of its text.
#pragma once

#include <deque>
#include <flashdma_bwd/kernel_table.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "selection/parsed.hpp"

namespace flashdma_bwd {

std::string row_text(const Row& row);

/// A row and the storage of its text.
struct OwnedRow {
  Row row;                      ///< its provenance_text is empty: see below
  std::string provenance_text;  ///< of the row
};
Parsed<OwnedRow> parse_row(std::string_view line);

/// The first line of a table file; the others are rows, empty, or comments that begin with '#'.
inline constexpr std::string_view kTableFileHeader = "flashdma_bwd table 1";

/// The rows of a table file with the storage of their texts. Cannot be copied: rows refer into it.
class TableFile {
 public:
  TableFile() = default;
  TableFile(const TableFile&) = delete;
  TableFile& operator=(const TableFile&) = delete;

  /// Replaces the rows by those of `text`; `path` becomes the rows' file. Returns what is wrong with the text, starting
  /// with "<path>:<line>: ", or nothing.
  std::string read(std::string_view text, std::string path);
  const std::vector<Row>& rows() const { return rows_; }

 private:
  std::string path_;
  std::deque<std::string> texts_;  // addresses of elements stay
  std::vector<Row> rows_;
};

}  // namespace flashdma_bwd
