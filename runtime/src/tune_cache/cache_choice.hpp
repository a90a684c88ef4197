// Where the cache takes part in a choice: behind every override, in front of the built-in tables.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <functional>

#include "resolve.hpp"
#include "tune_cache/tune_session.hpp"

namespace flashdma_bwd {

/// Replaces the table's choice by the session's, if it has one. `resolution` is what `resolve` gave. The session is not
/// asked where an override decided (arguments.kernel, FLASHDMA_BWD_KERNEL, FLASHDMA_BWD_ARCH, a row of
/// FLASHDMA_BWD_TABLE), where the call wants the table only, and where there are no pairs of a query and a key.
/// nullptr: there is no session. A failure: the session's options cannot be honoured.
Check ask_cache(TuneSession* session, const Environment& environment, const Request& request, Resolution& resolution);

/// The same behind a measurement, which may have been another thread's, with more workspace: the session's choice is
/// taken only if `fits` says that it can run here, and else the resolution stays as it is.
Check ask_cache_again(TuneSession* session, const Environment& environment, const Request& request,
                      const std::function<bool(const KernelConfig&)>& fits, Resolution& resolution);

/// `resolve`, and then `ask_cache`.
Check choose_kernel(const DispatchTable& table, const Environment& environment, TuneSession* session,
                    const Request& request, Resolution& resolution);

/// The same as text: what the cache has for this request, and what there is without it.
std::string explain_choice(const DispatchTable& table, const Environment& environment, TuneSession* session,
                           const Request& request);

}  // namespace flashdma_bwd
