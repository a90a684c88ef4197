// What the library says on stderr, see environment.hpp for FLASHDMA_BWD_LOG. Nothing here locks or allocates on the way
// of a call that has nothing to say.
#pragma once

#include <string>

#include "environment.hpp"
#include "resolve.hpp"

namespace flashdma_bwd {

/// Before a launch: at level warning, once for each pair of GPU generation and tier, that the tables of an older
/// architecture serve it; at level info, which kernel runs, once for each problem, and that a GPU with the Hopper
/// family runs the Ampere family and why, once for each row.
void log_resolution(const Environment& environment, const Request& request, const Resolution& resolution);

/// At level warning and above, each time.
void log_warning(const Environment& environment, const std::string& text);

}  // namespace flashdma_bwd
