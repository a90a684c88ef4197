// "Did you mean": the candidate nearest to a misspelt word.
#pragma once

#include <string_view>
#include <vector>

namespace flashdma_bwd {

/// The candidate with the smallest edit distance to `word`, or an empty text if none is near: at most a third of its
/// length.
std::string_view nearest_of(std::string_view word, const std::vector<std::string_view>& candidates);

}  // namespace flashdma_bwd
