// Notes that help with misspelt words.
#include "diagnostics/suggest.hpp"

#include <cstddef>

#include "selection/suggestion.hpp"

namespace flashdma_bwd::generator {

std::vector<std::string> did_you_mean(std::string_view word, const std::vector<std::string_view>& candidates) {
  constexpr std::size_t kLongestWord = 64;  // nobody misspells a page of text
  const std::string_view meant = word.size() <= kLongestWord ? nearest_of(word, candidates) : std::string_view();
  if (meant.empty()) return {};
  return {"did you mean `" + std::string(meant) + "`?"};
}

std::string enumerate(const std::vector<std::string_view>& words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (i > 0) text += i + 1 == words.size() ? " or " : ", ";
    text += '`';
    text += words[i];
    text += '`';
  }
  return text;
}

}  // namespace flashdma_bwd::generator
