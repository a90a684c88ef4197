// Lines of progress.
#include "progress.hpp"

#include <array>
#include <cmath>
#include <cstdio>
#include <ostream>
#include <utility>

namespace flashdma_bwd::tune {

std::string decimal(double value, int digits) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%.*f", digits, value);
  return text.data();
}

std::string duration_text(double seconds) {
  if (seconds < 90) return decimal(std::ceil(seconds), 0) + " s";
  const auto minutes = static_cast<long>(std::ceil(seconds / 60));
  if (minutes < 90) return std::to_string(minutes) + " min";
  return std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min";
}

Progress::Progress(std::ostream& out, bool terminal, Clock clock)
    : out_(out), terminal_(terminal), clock_(std::move(clock)) {}

void Progress::begin(std::size_t index, std::size_t count, const std::string& what) {
  if (started_ < 0) started_ = clock_();
  if (!terminal_) return;
  out_ << "\r\033[K" << index + 1 << " of " << count;
  if (index > 0) {
    const double left = (clock_() - started_) / static_cast<double>(index) * static_cast<double>(count - index);
    out_ << ", " << duration_text(left) << " left";
  }
  constexpr std::size_t kMostShown = 80;  // a line that wraps cannot be written over
  out_ << ": " << what.substr(0, kMostShown) << std::flush;
}

void Progress::end(std::size_t index, std::size_t count, const std::string& what) {
  if (terminal_) out_ << "\r\033[K";
  out_ << index + 1 << " of " << count << ": " << what << '\n' << std::flush;
}

}  // namespace flashdma_bwd::tune
