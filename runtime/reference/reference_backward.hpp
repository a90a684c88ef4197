// The CPU backend: the backward pass in double precision, the oracle of the tests and what the library offers where
// there is no GPU.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <string>

namespace flashdma_bwd {

/// What the outputs' data are.
enum class OutputFormat {
  of_the_arguments,  ///< of the types that the arguments say, rounded to nearest even
  float64,           ///< doubles, not rounded; strides count doubles
};

/// Computes the gradients of `arguments`, whose pointers are host memory and whose fields have been validated, on
/// `threads` threads (0 or less: one for each hardware thread). Every product and sum is in double precision; only
/// outputs are rounded. The result does not depend on the number of threads. A mask plan lives in
/// device memory and cannot be read here: a plan without the mask that it was built from is unsupported. On failure
/// `message` says why.
flashdma_bwd_code reference_backward(const flashdma_bwd_arguments& arguments, int threads, std::string& message,
                                     OutputFormat format = OutputFormat::of_the_arguments);

}  // namespace flashdma_bwd
