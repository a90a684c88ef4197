// Tensor maps: how the copy engine finds the tiles of Q, K, V and dO, and the LSE and D of a tile's queries.
//
// Those of the tiles are five-dimensional, so that fixed-length and packed batches have one form and rows past the end
// of a sequence arrive as zeros, whatever lies behind them in memory. The dimensions, innermost first:
//
//     column    head_dim
//     row       longest: a sequence of `length` rows occupies the last `length` of them
//     end       one past the sequence's last row in the packed tensor; length in a fixed-length one
//     head
//     batch     1 in a packed tensor
//
// Row and end have the same stride, and the map's address lies `longest` rows before the tensor's: row r of a sequence
// is at coordinates (column, longest - length + r, end). (The trick is known as a ragged tensor map; Triton's
// tools/ragged_tma.py uses it for grouped products.) dK and dV are stored by such maps: what of a box lies past a
// sequence's end is not written. A tile bias is read by such a map, too: its columns are keys, its
// rows queries, of which a sequence has the first `length`. Its gradient is stored by a map of four dimensions, without
// the end: what lies past it in the tensor is written, too. LSE and D are scratch of [heads][scratch_rows] float32;
// their maps have these two dimensions, that of both as terms of products one more before them. A mask's words, each of
// 64 keys, have those of queries, key atoms and masks.
//
// No box may lie wholly outside its tensor: such a one makes the copy engine read near the map's address although
// nothing of it is wanted (an illegal memory access on an H200 where no memory lies before the tensor; a box with an
// element inside reads what is inside). start_inside() moves those that would.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include "common/host_device.hpp"
#include "common/parameters.hpp"

namespace flashdma_bwd::hopper {

struct TensorMaps {
  CUtensorMap q, d_out, k, v;
  CUtensorMap lse, row_dot;  ///< of a kernel without has_statistic_terms()
  CUtensorMap terms;         ///< of one with it
  CUtensorMap d_k, d_v;
  CUtensorMap mask;          ///< of a problem with bits of pairs
  CUtensorMap bias, d_bias;  ///< of a kernel with a tile bias; d_bias if its gradient is wanted
};

/// Of dQ's kernel where dQ is the product of dBias and K.
struct QueryGradientMaps {
  CUtensorMap d_bias, k;
};

/// What a copy brings: a panel of a tile, see panel_tile.hpp.
struct MapBox {
  int rows;
  int columns;
};
struct MapBoxes {
  MapBox query, key, value;  ///< dO's are Q's
  MapBox key_gradient;       ///< of dK and dV
  int statistics;            ///< queries of which LSE or D, or the terms of both, are copied at once
  MapBox mask;               ///< key atoms x queries; no rows: the kernel reads the words itself
  MapBox pair;               ///< of a tile bias; no rows: the kernel has none
};

/// Where a box begins, of keys or of columns: at `first`, or at `instead` if that is past the end, where copies may
/// bring any numbers: P and dS of keys past the end are cleared, and Q's columns past the head dim are zeros.
FLASHDMA_HOST_DEVICE constexpr int start_inside(int first, int end, int instead) {
  return first < end ? first : instead;
}

/// Fills the maps of a call. cudaErrorInvalidValue: a stride is 2^40 bytes or longer, or the kernel has a tile bias and
/// the problem not `bias_copies`.
cudaError_t encode_tensor_maps(TensorMaps& maps, const BackwardParameters& parameters, const MapBoxes& boxes);

/// The same of dQ's kernel, by which dBias is read as a tile bias is.
cudaError_t encode_query_gradient_maps(QueryGradientMaps& maps, const BackwardParameters& parameters,
                                       const MapBox& d_bias, const MapBox& key);

}  // namespace flashdma_bwd::hopper
