// How long the choice of a kernel takes.
#pragma once

namespace flashdma_bwd::bench {

/// Times selection for GPUs of every table and prints nanoseconds a call. Needs no GPU. False: a selection failed.
bool print_select_benchmark();

}  // namespace flashdma_bwd::bench
