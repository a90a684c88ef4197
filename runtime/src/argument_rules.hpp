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

/// The C header's name of a mask's encoding, which is one.
inline const char* encoding_name(std::int32_t encoding) {
  constexpr const char* kNames[] = {"FLASHDMA_BWD_ENCODING_BYTES", "FLASHDMA_BWD_ENCODING_BITS",
                                    "FLASHDMA_BWD_ENCODING_KEY_LIST", "FLASHDMA_BWD_ENCODING_INTERVALS",
                                    "FLASHDMA_BWD_ENCODING_BLOCKS"};
  return kNames[encoding];
}

/// Whether a number is a flashdma_bwd_mask_encoding.
inline bool is_encoding(std::int32_t encoding) {
  return encoding >= FLASHDMA_BWD_ENCODING_BYTES && encoding <= FLASHDMA_BWD_ENCODING_BLOCKS;
}

/// Shapes and types of mask, bias and dBias.
Check check_pairs(const flashdma_bwd_arguments& arguments);
/// Whether the plan is of this call's mask.
Check check_plan(const flashdma_bwd_arguments& arguments);
/// Whether a call with a plan may have a schedule.
Check check_may_be_scheduled(const flashdma_bwd_arguments& arguments);
/// Whether a call may have a schedule, and this one is of its plan.
Check check_schedule(const flashdma_bwd_arguments& arguments);

}  // namespace flashdma_bwd
