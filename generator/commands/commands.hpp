// The verbs. Each returns an exit code.
#pragma once

#include "commands/command_line.hpp"

namespace flashdma_bwd::generator {

int run_generate(const Options& options, const Streams& streams);
int run_check(const Options& options, const Streams& streams);
int run_list(const Options& options, const Streams& streams);
int run_explain(const Options& options, const Streams& streams);
int run_diff(const Options& options, const Streams& streams);
int run_stats(const Options& options, const Streams& streams);

}  // namespace flashdma_bwd::generator
