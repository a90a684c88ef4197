// The schedule of a call: what its kernels find out of a plan before the main one, and which calls may share it: the
// tile lists and the work table. A call makes its own in the workspace, or is given one.
#pragma once

#include <cstddef>
#include <cstdint>

#include "common/parameters.hpp"
#include "launch/workspace_parts.hpp"

namespace flashdma_bwd {

/// Points parameters that were laid out, with or without memory, to the parts of their schedule. Returns room for what
/// is cleared where the table is written, and of which a call has its own (piece_arrivals).
std::int32_t* take_schedule(BackwardParameters& parameters, WorkspaceParts& parts);

/// Of everything that a schedule depends on beside its plan.
std::uint64_t schedule_hash(const BackwardParameters& parameters);

}  // namespace flashdma_bwd
