// What monitoring costs a launch on the CPU.
#pragma once

namespace flashdma_bwd::bench {

/// Times the path that every launch takes, with a launch that does nothing, with nothing monitored and with each thing
/// that can be, and prints nanoseconds a call. Needs no GPU. False: something could not be switched on.
bool print_monitoring_benchmark();

}  // namespace flashdma_bwd::bench
