// Gradients of a problem on the GPU: what the CPU backend says of the same inputs, and a sample of large ones.
#pragma once

#include <cstdint>
#include <flashdma_bwd/flashdma_bwd.hpp>
#include <string>
#include <vector>

namespace flashdma_bwd::tune {

/// dQ, dK, dV and dBias, widened to what holds each type exactly, in the order of memory: all of it, or the same places
/// of each where it is large.
struct GradientSample {
  std::vector<std::vector<float>> tensors;
};

/// Overwrites the outputs of a call with NaN. Returns CUDA's words, or an empty text.
std::string poison_gradients(const Arguments& arguments);

/// Reads the outputs of a call that has run, at most `most` elements of each tensor. Returns CUDA's words, or an empty
/// text. Tensors have the strides of bench::DeviceProblem: one after the other, without gaps.
std::string read_gradients(const Arguments& arguments, std::int64_t most, GradientSample& sample);

/// Copies the inputs to the host and computes the gradients there. Returns what went wrong, or an empty text.
std::string reference_gradients(const Arguments& arguments, GradientSample& sample);

/// The largest relative error of the tensors in the Frobenius norm; infinity where anything is not finite.
double relative_error(const GradientSample& got, const GradientSample& expected);

/// What a right kernel stays below: rounding to the type and in the products, with room for tensors in which much
/// cancels.
double error_bar(std::int32_t data_type);

}  // namespace flashdma_bwd::tune
