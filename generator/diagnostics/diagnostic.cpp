// The collection of findings.
#include "diagnostics/diagnostic.hpp"

#include <algorithm>
#include <tuple>
#include <utility>

namespace flashdma_bwd::generator {

void Diagnostics::add(Rule rule, Location location, std::string message, std::vector<std::string> notes) {
  list_.push_back({rule, std::move(location), std::move(message), std::move(notes)});
}

std::vector<Diagnostic> Diagnostics::sorted() const {
  std::vector<Diagnostic> result = list_;
  std::stable_sort(result.begin(), result.end(), [](const Diagnostic& a, const Diagnostic& b) {
    return std::tie(a.location.file, a.location.line, a.location.column) <
           std::tie(b.location.file, b.location.line, b.location.column);
  });
  return result;
}

}  // namespace flashdma_bwd::generator
