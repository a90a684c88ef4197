// The measurement in a backward whose problem has no choice yet.
#pragma once

#include <cuda_runtime_api.h>
#include <flashdma_bwd/flashdma_bwd.h>

#include "resolve.hpp"
#include "tune_cache/tune_session.hpp"

namespace flashdma_bwd {

/// Measures the candidates that the workspace has room for and puts the choice into `resolution`, which `ask_cache` has
/// left to the table, or leaves that as it is if the choice, by then another thread's, needs more. Does nothing where
/// the session does not measure, where the stream captures or where another thread measures. The arguments have been
/// validated and the workspace is enough for the table's choice.
Check measure_first_use(TuneSession* session, const DispatchTable& table, const Environment& environment,
                        const Request& request, const flashdma_bwd_arguments& arguments, void* workspace,
                        std::size_t workspace_bytes, cudaStream_t stream, Resolution& resolution);

}  // namespace flashdma_bwd
