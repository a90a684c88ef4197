// Bool masks in host memory, for tests of the plan kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

#include "plan/mask_plan.hpp"

namespace flashdma_bwd::testing {

struct HostMask {
  int batch = 1, heads = 1, queries = 0, keys = 0;
  int row_padding = 0;
  std::vector<std::uint8_t> bytes;

  std::size_t row_bytes() const { return static_cast<std::size_t>(keys + row_padding); }
  std::size_t index(int b, int h, int i, int j) const {
    return ((static_cast<std::size_t>(b) * static_cast<std::size_t>(heads) + static_cast<std::size_t>(h)) *
                static_cast<std::size_t>(queries) +
            static_cast<std::size_t>(i)) *
               row_bytes() +
           static_cast<std::size_t>(j);
  }
  bool keeps(int b, int h, int i, int j) const { return bytes[index(b, h, i, j)] != 0; }

  MaskView view() const {
    MaskView mask;
    mask.data = bytes.data();
    mask.batch = batch;
    mask.heads = heads;
    mask.queries = queries;
    mask.columns = mask.keys = keys;
    mask.stride_column = 1;
    mask.stride_row = static_cast<std::int64_t>(row_bytes());
    mask.stride_head = queries * mask.stride_row;
    mask.stride_batch = heads * mask.stride_head;
    return mask;
  }
};

/// Blocks of 32 x 32 that are kept, masked or mixed: all classes of atoms appear. Kept bytes are any but 0.
inline HostMask random_mask(std::mt19937& generator, int batch, int heads, int queries, int keys, int row_padding) {
  HostMask mask{batch, heads, queries, keys, row_padding, {}};
  mask.bytes.assign(mask.index(batch, 0, 0, 0), 0xAA);  // padding must not count
  const auto draw = [&](int high) { return std::uniform_int_distribution<int>(0, high)(generator); };
  for (int b = 0; b < batch; ++b)
    for (int h = 0; h < heads; ++h) {
      std::vector<int> kinds(64 * 64);
      const int most = draw(2);
      for (int& kind : kinds) kind = draw(3) == 0 ? draw(2) : most;
      for (int i = 0; i < queries; ++i)
        for (int j = 0; j < keys; ++j) {
          const int kind = kinds[static_cast<std::size_t>(i / 32 * 64 + j / 32)];
          const bool keep = kind == 1 || (kind == 2 && draw(1) == 0);
          mask.bytes[mask.index(b, h, i, j)] = keep ? static_cast<std::uint8_t>(1 + draw(254)) : std::uint8_t{0};
        }
    }
  return mask;
}

}  // namespace flashdma_bwd::testing
