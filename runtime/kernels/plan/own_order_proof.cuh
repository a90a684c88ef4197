// How the passes of a reordered plan read an OwnOrderProof.
#pragma once

#include "plan/own_order_proof.hpp"

namespace flashdma_bwd {

/// The lane's share of a mask's tiles, so that it can be read while other loads are under way.
/// Also before a kernel's wait for its predecessor (launch_order.cuh).
__device__ __forceinline__ int least_tiles_of_lane(const OwnOrderProof& proof, int mask_index, int lane) {
  return lane < proof.parts ? __ldcg(proof.least_tiles + mask_index * kMostParts + lane) : 0;
}

/// Whether the proof holds. All lanes of the warp, each with its share.
__device__ __forceinline__ bool holds(const OwnOrderProof& proof, int tiles_of_lane) {
  return proof.least_tiles != nullptr &&
         keeps_own_order(proof.most_own_tiles, __reduce_add_sync(0xffffffffu, tiles_of_lane));
}

}  // namespace flashdma_bwd
