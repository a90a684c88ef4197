// What a call's kernels are given beside its arguments: the parameters, and the parts of the workspace.
#pragma once

#include <flashdma_bwd/flashdma_bwd.h>

#include <cstddef>
#include <cstdint>

#include "common/kernel_entry.hpp"
#include "common/parameters.hpp"
#include "common/side_kernels.hpp"
#include "common/visibility.hpp"
#include "device_traits.hpp"
#include "launch/call_mask.hpp"

namespace flashdma_bwd {

inline bool is_packed(const flashdma_bwd_arguments& a) {
  return a.cu_seqlens_q != nullptr;
}

/// Everything that a call needs beside its arguments.
struct Call {
  BackwardParameters parameters;
  MaskShape mask;
  std::byte* plan = nullptr;                     ///< of the mask: the caller's, or in the workspace
  const std::int32_t* unclipped_keys = nullptr;  ///< of a packed batch's reordered plan, which each call clips
  bool scheduled = false;                        ///< the caller has given the tile lists and the work table
  BiasGradientOutput bias_output;
  float* bias_scratch = nullptr;  ///< what is reduced into bias_output, or nullptr: the kernel writes it
  PairShape bias_scratch_shape;
  std::size_t cleared_begin = 0;  ///< workspace that must hold zeros
  std::size_t cleared_end = 0;
  std::size_t bytes = 0;
};

/// `piece_steps`: as backward_workspace_bytes() takes it. `memory`: the workspace, or nullptr, where only its size is
/// wanted.
Call lay_out(const flashdma_bwd_arguments& arguments, const KernelConfig& config, const DeviceTraits& device,
             int piece_steps, void* memory);

BiasGradientOutput bias_gradient_output(const flashdma_bwd_arguments& arguments);

/// What causality and windows leave to every sequence of a call. Nothing is known of a packed batch's, whose lengths
/// lie on the device.
Limits mask_limits(const flashdma_bwd_arguments& arguments);

}  // namespace flashdma_bwd
