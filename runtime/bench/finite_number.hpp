// A check of command lines that other checks of numbers leave out: NaN is neither below nor above a bound.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cmath>
#include <string>

namespace flashdma_bwd::bench {

/// Refuses NaN, and infinity; a text that is no number is left to the option's type.
inline CLI::Validator finite_number() {
  return {[](const std::string& text) {
            double value = 0;
            std::from_chars(text.data(), text.data() + text.size(), value);
            return std::isfinite(value) ? std::string() : text + " is no finite number";
          },
          ""};
}

}  // namespace flashdma_bwd::bench
