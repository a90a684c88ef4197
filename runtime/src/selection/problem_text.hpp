// A problem as one line of text, printed and parsed symmetrically, and files of them.
//
//     bf16 d=128 b=1 h=16 hk=4 sq=8192 sk=8192 causal deterministic softcap bias=key_vector masked layout=reordered
//     density=120
//
// Data type, head dim, batch, heads, KV heads (left out where they are as many as the heads) and the two lengths, then
// what applies of: window=<queries that see a key at most> (with causal, without masked), causal, deterministic,
// softcap, bias=key_vector|tile, bias_copies (with bias=tile), masked, and with it layout=compacted|reordered and
// density=<active pairs per 1000>, left out at natural and 1000. Parsed in any order.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <flashdma_bwd/kernel_table.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "selection/parsed.hpp"

namespace flashdma_bwd {

std::string problem_text(const Problem& problem);
Parsed<Problem> parse_problem_text(std::string_view text);

/// The text without an allocation, for the launch path.
class ProblemTextBuffer {
 public:
  explicit ProblemTextBuffer(const Problem& problem);
  std::string_view view() const { return {text_.data(), size_}; }
  const char* c_str() const { return text_.data(); }

 private:
  std::array<char, 320> text_{};  // the longest, with six 64-bit counts, has some 250
  std::size_t size_ = 0;
};

/// The first line of a problem file; the others are problems, empty, or comments that begin with '#'.
inline constexpr std::string_view kProblemFileHeader = "flashdma_bwd problems 1";

/// In which way a problem file is wrong, for those who tell the ways apart.
enum class FaultKind : std::uint8_t {
  header,         ///< the first line is another
  unfinished,     ///< the last line has no end
  unknown_part,   ///< a word that no problem has
  repeated_part,  ///< a part that is there twice
  missing_part,   ///< a part that has to be there, or that another goes with
  value_form,     ///< a value too many, or none
  out_of_range,   ///< a number outside its range, or that does not go with another
  unknown_word,   ///< a value that is none of its part's words
};

/// What is wrong with a line, and which stretch of it.
struct ProblemFault {
  FaultKind kind;
  std::string why;
  int line = 1;            ///< 1-based
  std::size_t offset = 0;  ///< of the offending word in the line; 0 and the line's length where the whole is wrong
  std::size_t length = 0;  ///< may be 0
};

/// A last line without an end, or nothing. Whoever appends problems ends each line; one without an end may have lost
/// the tail of a number, and is a problem nevertheless. An empty text has no line.
std::optional<ProblemFault> unfinished_line(std::string_view text);

struct ProblemFile {
  std::vector<Problem> problems;     ///< in their order, those that stand there twice too
  std::vector<ProblemFault> faults;  ///< by line: the first of each, and that the last is unfinished
};

/// All that is in a file's `text`, and all that is wrong with it. After another first line no more is read.
ProblemFile read_problem_file(std::string_view text);

/// The same for those who want all or nothing and take a last line without an end. An error is the first fault and
/// starts with "<path>:<line>: ".
Parsed<std::vector<Problem>> parse_problem_file(std::string_view text, const std::string& path);

}  // namespace flashdma_bwd
