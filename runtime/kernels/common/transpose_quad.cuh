// A transposition that four neighbouring lanes of a warp do together.
#pragma once

#include <cstdint>

namespace flashdma_bwd {

/// Transposes a 4 x 4 matrix of words over four neighbouring lanes: lane c's word r becomes lane r's word c.
__device__ __forceinline__ void transpose_quad(std::uint32_t (&v)[4], int lane) {
#pragma unroll
  for (int mask = 1; mask <= 2; mask *= 2) {
    const bool upper = (lane & mask) != 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if ((i & mask) != 0) continue;
      const std::uint32_t received = __shfl_xor_sync(0xffffffffu, upper ? v[i] : v[i + mask], mask);
      if (upper)
        v[i] = received;
      else
        v[i + mask] = received;
    }
  }
}

}  // namespace flashdma_bwd
