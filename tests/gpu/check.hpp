// The one comparison that the GPU tests make: kernels against the CPU backend.
#pragma once

#include <string>
#include <vector>

#include "gpu/device_problem.hpp"
#include "support/problem.hpp"

namespace flashdma_bwd::testing {

enum class Kernels {
  every,      ///< the table's choice and each other compiled kernel that serves the problem
  the_table,  ///< the table's choice
};

/// Of a problem with a mask.
enum class Plans {
  of_the_call_and_prebuilt,
  of_the_call,
};

/// Computes the problem with the CPU backend once and with kernels, each with a plan that the call builds and, where
/// there is a mask, with a prebuilt one, every other time with a schedule of it. Checks that every element is written
/// and nothing else is, that the errors stay below the bar, and that what no query or key takes part in is exactly 0.
std::vector<std::string> check_problem(const ProblemSpec& spec, Kernels kernels = Kernels::every,
                                       Inputs inputs = Inputs::plain, Plans plans = Plans::of_the_call_and_prebuilt);

/// The same with what the test has changed in the problem's arguments.
std::vector<std::string> check_prepared_problem(Problem& problem, Kernels kernels = Kernels::every,
                                                Inputs inputs = Inputs::plain,
                                                Plans plans = Plans::of_the_call_and_prebuilt);

/// Runs the device's arguments as they are, whatever the test has changed in them, and checks what they gave, without a
/// record of it.
void check_gradients(Problem& problem, DeviceProblem& device, const Gradients& expected);

/// The same as check_problem for fp16 and bf16.
void check_both_types(ProblemSpec spec, Kernels kernels = Kernels::every);

}  // namespace flashdma_bwd::testing
