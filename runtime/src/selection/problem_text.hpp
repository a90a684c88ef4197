// A problem as one line of text, printed and parsed symmetrically, and files of them.
//
//     bf16 d=128 b=1 h=16 hk=4 sq=8192 sk=8192 causal deterministic softcap bias=key_vector masked layout=reordered
//     density=120
//
// Data type, head dim, batch, heads, KV heads (left out where they are as many as the heads) and the two lengths, then
// what applies of: causal, deterministic, softcap, bias=key_vector|tile, bias_copies (with bias=tile), masked, and with
// it layout=compacted|reordered and density=<active pairs per 1000>, left out at natural and 1000. Parsed in any order.
#pragma once

#include <array>
#include <cstddef>
#include <flashdma_bwd/kernel_table.hpp>
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
  std::array<char, 256> text_{};  // the longest, with five 64-bit counts, has some 220
  std::size_t size_ = 0;
};

/// The first line of a problem file; the others are problems, empty, or comments that begin with '#'.
inline constexpr std::string_view kProblemFileHeader = "flashdma_bwd problems 1";

/// The problems of a file's `text` in its order, those that stand there twice too. An error starts with
/// "<path>:<line>: ".
Parsed<std::vector<Problem>> parse_problem_file(std::string_view text, const std::string& path);

}  // namespace flashdma_bwd
