// A call that cannot be carried out: the code and the message of the C ABI.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <optional>
#include <string>
#include <utility>

namespace flashdma_bwd {

struct Failure {
  flashdma_bwd_code code = FLASHDMA_BWD_INVALID_ARGUMENT;
  std::string message;  ///< what, where, why, what to do
};

/// Nothing, or why not. Success allocates nothing.
using Check = std::optional<Failure>;

inline Check invalid(std::string message) {
  return Failure{FLASHDMA_BWD_INVALID_ARGUMENT, std::move(message)};
}
inline Check unsupported(std::string message) {
  return Failure{FLASHDMA_BWD_UNSUPPORTED, std::move(message)};
}

}  // namespace flashdma_bwd
