// Loading of the kernels around the main one.
#include "common/side_kernels.cuh"

namespace flashdma_bwd {

cudaError_t load_side_kernels() {
  for (const auto load : {side::load_preprocess, side::load_convert_gradients, side::load_d_key_value,
                          side::load_reduce_bias_gradient, side::load_clear_bias_gradient})
    if (const cudaError_t error = load(); error != cudaSuccess) return error;
  return cudaSuccess;
}

}  // namespace flashdma_bwd
