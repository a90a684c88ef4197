// Notes that help with misspelt words.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flashdma_bwd::generator {

/// "did you mean `word`?", or nothing if no candidate is near.
std::vector<std::string> did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates);

/// "`a`, `b` or `c`".
std::string enumerate(const std::vector<std::string_view>& words);

}  // namespace flashdma_bwd::generator
