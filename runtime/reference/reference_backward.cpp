// The three passes of the CPU backend. Each writes outputs that no other task writes, in an order of summation that the
// problem alone fixes, so the result is the same for every number of threads:
//   1. dQ    a task is 64 queries of a query head and walks the keys;
//   2. dK,dV a task is 64 keys of a KV head and walks the queries of the heads that share it;
//   3. dBias a task is a 64 x 64 block of dBias and walks all pairs that were broadcast to it.
// Scores are recomputed in each pass: arithmetic is cheaper here than memory that grows with the square of the length.
#include "reference/reference_backward.hpp"

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "reference/number_formats.hpp"
#include "reference/parallel.hpp"
#include "reference/score_tile.hpp"
#include "reference/tile_product.hpp"
#include "reference/visibility.hpp"

namespace flashdma_bwd {
namespace {

std::int64_t tiles_of(std::int64_t length) {
  return (length + kTile - 1) / kTile;
}

/// Query heads that share a KV head; 1 where there are none.
std::int64_t heads_per_kv_head(const flashdma_bwd_arguments& arguments) {
  return arguments.heads_kv > 0 ? arguments.heads / arguments.heads_kv : 1;
}

void store_output(OutputFormat format, void* data, std::int32_t type, std::int64_t index, double value) {
  if (format == OutputFormat::float64)
    static_cast<double*>(data)[index] = value;
  else
    store_element(data, type, index, value);
}

void store_rows(OutputFormat format, const flashdma_bwd_arguments& arguments, const flashdma_bwd_tensor& tensor,
                std::int64_t offset, int count, const std::vector<double>& rows, double factor) {
  for (int i = 0; i < count; ++i)
    for (int c = 0; c < arguments.head_dim; ++c)
      store_output(format, tensor.data, arguments.data_type, offset + i * tensor.stride_row + c,
                   factor * rows[static_cast<std::size_t>(i * arguments.head_dim + c)]);
}

/// Packed rows past the last sequence belong to no query or key: their gradients are zero.
void clear_rows_past_the_end(const flashdma_bwd_arguments& arguments, OutputFormat format) {
  if (arguments.cu_seqlens_q == nullptr) return;
  const auto clear = [&](const flashdma_bwd_tensor& tensor, std::int64_t begin, std::int64_t end, std::int64_t heads) {
    for (std::int64_t row = begin; row < end; ++row)
      for (std::int64_t head = 0; head < heads; ++head)
        for (int c = 0; c < arguments.head_dim; ++c)
          store_output(format, tensor.data, arguments.data_type,
                       row * tensor.stride_row + head * tensor.stride_head + c, 0.0);
  };
  const std::int64_t last_query = arguments.cu_seqlens_q[arguments.batch];
  const std::int64_t last_key = arguments.cu_seqlens_k[arguments.batch];
  clear(arguments.d_q, last_query, arguments.total_q, arguments.heads);
  clear(arguments.d_k, last_key, arguments.total_k, arguments.heads_kv);
  clear(arguments.d_v, last_key, arguments.total_k, arguments.heads_kv);
}

void query_gradients(const flashdma_bwd_arguments& arguments, int threads, OutputFormat format) {
  const std::int64_t tiles = tiles_of(arguments.seqlen_q);
  const int head_dim = arguments.head_dim;
  parallel_tasks(arguments.batch * arguments.heads * tiles, threads, [&] {
    return [&arguments, format, tiles, head_dim, tile = ScoreTile(arguments),
            d_q = std::vector<double>(static_cast<std::size_t>(kTile * head_dim))](std::int64_t task) mutable {
      const Sequence sequence = sequence_of(arguments, task / tiles / arguments.heads);
      const std::int64_t head = task / tiles % arguments.heads;
      const std::int64_t query = task % tiles * kTile;
      if (query >= sequence.queries) return;
      const std::int64_t head_kv = head / heads_per_kv_head(arguments);
      std::fill(d_q.begin(), d_q.end(), 0.0);
      tile.load_queries(sequence, head, query);
      for (std::int64_t key = 0; key < sequence.keys; key += kTile) {
        if (!tile_reachable(arguments, sequence, query, key)) continue;
        tile.load_keys(sequence, head_kv, key);
        if (tile.compute())
          tile_product(d_q.data(), head_dim, tile.g(), kTile, 1, tile.k(), head_dim, kTile, kTile, head_dim);
      }
      store_rows(format, arguments, arguments.d_q,
                 row_offset(arguments.d_q, sequence, sequence.query_begin, query, head), tile.queries(), d_q,
                 score_scale(arguments));
    };
  });
}

void key_gradients(const flashdma_bwd_arguments& arguments, int threads, OutputFormat format) {
  const std::int64_t tiles = tiles_of(arguments.seqlen_k);
  const int head_dim = arguments.head_dim;
  parallel_tasks(arguments.batch * arguments.heads_kv * tiles, threads, [&] {
    const std::size_t size = static_cast<std::size_t>(kTile * head_dim);
    return [&arguments, format, tiles, head_dim, tile = ScoreTile(arguments), d_k = std::vector<double>(size),
            d_v = std::vector<double>(size)](std::int64_t task) mutable {
      const Sequence sequence = sequence_of(arguments, task / tiles / arguments.heads_kv);
      const std::int64_t head_kv = task / tiles % arguments.heads_kv;
      const std::int64_t group = heads_per_kv_head(arguments);
      const std::int64_t key = task % tiles * kTile;
      if (key >= sequence.keys) return;
      std::fill(d_k.begin(), d_k.end(), 0.0);
      std::fill(d_v.begin(), d_v.end(), 0.0);
      tile.load_keys(sequence, head_kv, key);
      for (std::int64_t head = head_kv * group; head < (head_kv + 1) * group; ++head) {
        for (std::int64_t query = 0; query < sequence.queries; query += kTile) {
          if (!tile_reachable(arguments, sequence, query, key)) continue;
          tile.load_queries(sequence, head, query);
          if (!tile.compute()) continue;
          tile_product(d_k.data(), head_dim, tile.g(), 1, kTile, tile.q(), head_dim, kTile, kTile, head_dim);
          tile_product(d_v.data(), head_dim, tile.p(), 1, kTile, tile.d_out(), head_dim, kTile, kTile, head_dim);
        }
      }
      store_rows(format, arguments, arguments.d_k,
                 row_offset(arguments.d_k, sequence, sequence.key_begin, key, head_kv), tile.keys(), d_k,
                 score_scale(arguments));
      store_rows(format, arguments, arguments.d_v,
                 row_offset(arguments.d_v, sequence, sequence.key_begin, key, head_kv), tile.keys(), d_v, 1.0);
    };
  });
}

// A block of dBias: the ranges of the problem's dimensions that are summed into it.
struct BiasBlock {
  std::int64_t batch_begin, batch_end, head_begin, head_end;
  std::int64_t query_begin, query_end, key_begin, key_end;  // multiples of the tile, or the end
};

void add_to_bias_block(ScoreTile& tile, const flashdma_bwd_arguments& arguments, const BiasBlock& block,
                       std::vector<double>& sums) {
  const bool by_row = arguments.d_bias.rows > 1;
  const bool by_column = arguments.d_bias.columns > 1;
  for (std::int64_t batch = block.batch_begin; batch < block.batch_end; ++batch) {
    const Sequence sequence = sequence_of(arguments, batch);
    for (std::int64_t key = block.key_begin; key < std::min(block.key_end, sequence.keys); key += kTile) {
      for (std::int64_t head = block.head_begin; head < block.head_end; ++head) {
        tile.load_keys(sequence, head / heads_per_kv_head(arguments), key);
        for (std::int64_t query = block.query_begin; query < std::min(block.query_end, sequence.queries);
             query += kTile) {
          if (!tile_reachable(arguments, sequence, query, key)) continue;
          tile.load_queries(sequence, head, query);
          if (!tile.compute()) continue;
          for (int i = 0; i < kTile; ++i)
            for (int j = 0; j < kTile; ++j)
              sums[static_cast<std::size_t>((by_row ? i : 0) * kTile + (by_column ? j : 0))] +=
                  tile.ds()[i * kTile + j];
        }
      }
    }
  }
}

void bias_gradient(const flashdma_bwd_arguments& arguments, int threads, OutputFormat format) {
  const flashdma_bwd_pair_tensor& d_bias = arguments.d_bias;
  const std::int64_t row_tiles = tiles_of(d_bias.rows);
  const std::int64_t column_tiles = tiles_of(d_bias.columns);
  const auto range = [](std::int64_t size, std::int64_t index, std::int64_t extent) {
    return size > 1 ? std::pair(extent / size * index, extent / size * (index + 1))
                    : std::pair(std::int64_t{0}, extent);
  };
  parallel_tasks(d_bias.batch * d_bias.heads * row_tiles * column_tiles, threads, [&] {
    return [&, tile = ScoreTile(arguments), sums = std::vector<double>(kTile * kTile)](std::int64_t task) mutable {
      const std::int64_t column = task % column_tiles * kTile;
      const std::int64_t row = task / column_tiles % row_tiles * kTile;
      const std::int64_t head = task / column_tiles / row_tiles % d_bias.heads;
      const std::int64_t batch = task / column_tiles / row_tiles / d_bias.heads;
      const auto [batch_begin, batch_end] = range(d_bias.batch, batch, arguments.batch);
      const auto [head_begin, head_end] = range(d_bias.heads, head, arguments.heads);
      const auto [query_begin, query_end] =
          d_bias.rows > 1 ? std::pair(row, row + kTile) : std::pair(std::int64_t{0}, arguments.seqlen_q);
      const auto [key_begin, key_end] =
          d_bias.columns > 1 ? std::pair(column, column + kTile) : std::pair(std::int64_t{0}, arguments.seqlen_k);
      std::fill(sums.begin(), sums.end(), 0.0);
      add_to_bias_block(tile, arguments,
                        {batch_begin, batch_end, head_begin, head_end, query_begin, query_end, key_begin, key_end},
                        sums);
      const std::int64_t start = batch * d_bias.stride_batch * (d_bias.batch > 1 ? 1 : 0) +
                                 head * d_bias.stride_head * (d_bias.heads > 1 ? 1 : 0);
      const std::int64_t row_stride = d_bias.rows > 1 ? d_bias.stride_row : 0;
      const std::int64_t column_stride = d_bias.columns > 1 ? d_bias.stride_column : 0;
      for (std::int64_t i = row; i < std::min(row + kTile, d_bias.rows); ++i)
        for (std::int64_t j = column; j < std::min(column + kTile, d_bias.columns); ++j)
          store_output(format, d_bias.data, d_bias.data_type, start + i * row_stride + j * column_stride,
                       sums[static_cast<std::size_t>((i - row) * kTile + (j - column))]);
    };
  });
}

}  // namespace

flashdma_bwd_code reference_backward(const flashdma_bwd_arguments& arguments, int threads, std::string& message,
                                     OutputFormat format) {
  if (arguments.plan != nullptr && arguments.mask.data == nullptr) {
    message =
        "plan: a mask plan lies in device memory, which the CPU backend cannot read; set mask to the mask in host "
        "memory";
    return FLASHDMA_BWD_UNSUPPORTED;
  }
  try {
    clear_rows_past_the_end(arguments, format);
    query_gradients(arguments, threads, format);
    key_gradients(arguments, threads, format);
    if (arguments.bias.data != nullptr && arguments.d_bias.data != nullptr) bias_gradient(arguments, threads, format);
  } catch (const std::bad_alloc&) {
    message = "the CPU backend found no host memory for its tiles: use fewer threads";
    return FLASHDMA_BWD_UNSUPPORTED;
  }
  return FLASHDMA_BWD_OK;
}

}  // namespace flashdma_bwd
