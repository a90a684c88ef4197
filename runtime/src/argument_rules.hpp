// What the files with the rules of flashdma_bwd_arguments share.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <cstdint>
#include <string>

#include "failure.hpp"

namespace flashdma_bwd {

struct Named {
  const char* name;
  std::int64_t value;
};

/// "<name> is <value>: "
inline std::string is(const std::string& name, std::int64_t value) {
  return name + " is " + std::to_string(value) + ": ";
}

/// Shapes and types of mask, bias and dBias.
Check check_pairs(const flashdma_bwd_arguments& arguments);
/// Whether the plan is of this call's mask.
Check check_plan(const flashdma_bwd_arguments& arguments);

}  // namespace flashdma_bwd
