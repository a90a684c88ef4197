// The result of parsing: a value, or what is wrong with the text.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace flashdma_bwd {

template <class T>
struct Parsed {
  std::optional<T> value;
  std::string error;  ///< empty if there is a value

  Parsed(T parsed) : value(std::move(parsed)) {}
  static Parsed failure(const std::string& why) {
    Parsed result;
    result.error = why;
    return result;
  }
  explicit operator bool() const { return value.has_value(); }

 private:
  Parsed() = default;
};

}  // namespace flashdma_bwd
