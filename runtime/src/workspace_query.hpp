// How much workspace a call may need, whichever kernel it turns out to run.
#pragma once

#include <cstddef>
#include <functional>

#include "resolve.hpp"
#include "tune_cache/tune_session.hpp"

namespace flashdma_bwd {

/// The most that any kernel needs that a call may choose or measure. Addresses and strides of a tile bias go into the
/// choice, but are not known here: `may_copy_bias` says whether tensor copies could move it. With a session that
/// measures, a problem without a choice may run any of its candidates. A failure where there is no kernel whatever the
/// addresses are. `bytes_of`: what one configuration needs.
Check largest_workspace(const DispatchTable& table, const Environment& environment, TuneSession* session,
                        const Request& request, bool may_copy_bias,
                        const std::function<std::size_t(const KernelConfig&)>& bytes_of, std::size_t& bytes);

}  // namespace flashdma_bwd
