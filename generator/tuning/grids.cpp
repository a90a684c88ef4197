// The grids, from lists of lengths, heads, biases and masks.
#include "tuning/grids.hpp"

#include <cstdint>
#include <initializer_list>

namespace flashdma_bwd::generator {
namespace {

Problem dense(DataType data_type, int head_dim, std::int64_t batch, std::int64_t heads, std::int64_t heads_kv,
              std::int64_t seqlen, bool causal) {
  Problem problem;
  problem.data_type = data_type;
  problem.head_dim = head_dim;
  problem.batch = batch;
  problem.heads = heads;
  problem.heads_kv = heads_kv;
  problem.seqlen_q = problem.seqlen_k = seqlen;
  problem.causal = causal;
  return problem;
}

/// A key bias, causality and a mask that differs for each query: dynamic mask attention.
Problem masked(int head_dim, std::int64_t heads, std::int64_t heads_kv, std::int64_t seqlen, KeyLayout layout,
               int density, BiasKind bias = BiasKind::key_vector) {
  Problem problem = dense(DataType::bf16, head_dim, 1, heads, heads_kv, seqlen, true);
  problem.bias = bias;
  problem.masked = true;
  problem.layout = layout;
  problem.mask_density = density;
  return problem;
}

Problem biased(Problem problem, BiasKind bias, bool copies = false) {
  problem.bias = bias;
  problem.bias_copies = copies;
  return problem;
}

Problem capped(Problem problem) {
  problem.softcap = true;
  return problem;
}

Problem deterministic(Problem problem) {
  problem.deterministic = true;
  return problem;
}

/// Causal: a query sees the last `window` keys up to its own.
Problem windowed(int head_dim, std::int64_t batch, std::int64_t seqlen, std::int64_t window) {
  const std::int64_t heads = 2048 / head_dim;
  Problem problem = dense(DataType::bf16, head_dim, batch, heads, heads, seqlen, true);
  problem.window = window;
  return problem;
}

struct Size {
  std::int64_t batch, heads, seqlen;
};

/// Dense problems of these sizes, with and without causality.
void add_dense(std::vector<Problem>& problems, DataType data_type, std::initializer_list<int> head_dims,
               std::initializer_list<Size> sizes) {
  for (const int head_dim : head_dims)
    for (const Size& size : sizes)
      for (const bool causal : {false, true})
        problems.push_back(dense(data_type, head_dim, size.batch, size.heads, size.heads, size.seqlen, causal));
}

/// Every kind of problem that a row may be about, in every head dim: so that each row is one of those that are
/// measured.
void add_features(std::vector<Problem>& problems) {
  for (const int head_dim : {32, 64, 96, 128, 192, 256}) {
    const auto usual = [&](std::int64_t batch, std::int64_t seqlen, bool causal) {
      return dense(DataType::bf16, head_dim, batch, 12, 12, seqlen, causal);
    };
    for (const bool causal : {false, true}) {
      for (const std::int64_t seqlen : {2048, 8192}) {
        problems.push_back(capped(usual(1, seqlen, causal)));
        problems.push_back(biased(usual(1, seqlen, causal), BiasKind::key_vector));
        problems.push_back(deterministic(usual(1, seqlen, causal)));
      }
      problems.push_back(deterministic(usual(8, 2048, causal)));
    }
    problems.push_back(capped(biased(usual(1, 2048, true), BiasKind::key_vector)));
    problems.push_back(capped(biased(dense(DataType::bf16, head_dim, 1, 8, 8, 2048, true), BiasKind::tile, true)));
    problems.push_back(capped(deterministic(usual(1, 2048, true))));
    for (const std::int64_t seqlen : {2048, 3072}) {
      const std::int64_t heads = seqlen == 2048 ? 8 : 16;
      const Problem uncopied = biased(dense(DataType::bf16, head_dim, 1, heads, 2, seqlen, true), BiasKind::tile);
      problems.push_back(uncopied);
      problems.push_back(capped(uncopied));
    }
    for (const int density : {100, 400}) {
      for (const KeyLayout layout : {KeyLayout::natural, KeyLayout::reordered})
        problems.push_back(masked(head_dim, 16, 4, 4096, layout, density, BiasKind::none));
      problems.push_back(masked(head_dim, 16, 4, 2048, KeyLayout::natural, density, BiasKind::none));
      problems.push_back(masked(head_dim, 16, 4, 4096, KeyLayout::natural, density));
      problems.push_back(masked(head_dim, 16, 4, 8192, KeyLayout::reordered, density));
    }
    for (const std::int64_t seqlen : {4096, 8192})
      problems.push_back(capped(masked(head_dim, 16, 4, seqlen, KeyLayout::reordered, 100, BiasKind::none)));
  }
}

std::vector<Problem> smoke() {
  const Problem usual = dense(DataType::bf16, 64, 1, 4, 4, 512, true);
  return {usual,
          dense(DataType::fp16, 128, 2, 4, 2, 512, false),
          biased(usual, BiasKind::key_vector),
          biased(usual, BiasKind::tile, true),
          biased(dense(DataType::bf16, 64, 1, 4, 2, 512, true), BiasKind::tile),
          capped(usual),
          deterministic(usual),
          masked(64, 4, 2, 512, KeyLayout::natural, 250),
          masked(64, 4, 2, 2048, KeyLayout::reordered, 250),
          masked(64, 4, 2, 2048, KeyLayout::compacted, 500)};
}

std::vector<Problem> sm90() {
  std::vector<Problem> problems;
  // From one head with few keys to more than the GPU takes at once: 1 to 128 heads of all sequences, 256 to 32768 keys.
  add_dense(problems, DataType::bf16, {64, 128},
            {{1, 1, 256},
             {1, 16, 256},
             {8, 16, 256},
             {1, 16, 1024},
             {8, 16, 1024},
             {1, 1, 4096},
             {1, 16, 4096},
             {4, 16, 4096},
             {1, 1, 16384},
             {1, 16, 16384},
             {1, 16, 32768}});
  add_dense(problems, DataType::bf16, {32, 96, 192, 256},
            {{8, 16, 256}, {8, 16, 1024}, {1, 16, 4096}, {1, 1, 16384}, {1, 16, 16384}});
  add_dense(problems, DataType::fp16, {64, 128}, {{8, 16, 256}, {8, 16, 1024}, {1, 16, 4096}, {1, 16, 16384}});
  for (const int head_dim : {64, 128})
    for (const std::int64_t seqlen : {1024, 4096, 16384}) {
      const Problem usual = dense(DataType::bf16, head_dim, 1, 16, 16, seqlen, true);
      problems.push_back(capped(usual));
      problems.push_back(deterministic(usual));
      problems.push_back(biased(usual, BiasKind::key_vector));
      problems.push_back(biased(dense(DataType::bf16, head_dim, 1, 16, 16, seqlen, false), BiasKind::key_vector));
    }
  for (const int head_dim : {32, 64, 96, 128, 192, 256})
    for (const std::int64_t seqlen : {512, 2048, 4096}) {
      const Problem usual = dense(DataType::bf16, head_dim, 1, 8, 8, seqlen, true);
      problems.push_back(biased(usual, BiasKind::tile, true));
    }
  for (const int head_dim : {64, 128})
    for (const std::int64_t seqlen : {1024, 4096})
      problems.push_back(biased(dense(DataType::bf16, head_dim, 1, 8, 2, seqlen, true), BiasKind::tile));
  for (const int head_dim : {64, 128}) {
    for (const std::int64_t seqlen : {2048, 4096, 8192, 16384})
      for (const int density : {30, 120, 500}) {
        problems.push_back(masked(head_dim, 16, 4, seqlen, KeyLayout::reordered, density));
        if (seqlen <= 8192) problems.push_back(masked(head_dim, 16, 4, seqlen, KeyLayout::natural, density));
      }
    for (const std::int64_t seqlen : {2048, 16384})
      for (const int density : {120, 500})
        problems.push_back(masked(head_dim, 16, 4, seqlen, KeyLayout::compacted, density));
    for (const int density : {120, 500})
      problems.push_back(masked(head_dim, 16, 4, 8192, KeyLayout::reordered, density, BiasKind::none));
    for (const std::int64_t seqlen : {4096, 16384})
      problems.push_back(masked(head_dim, 2, 1, seqlen, KeyLayout::reordered, 120));
  }
  for (const int head_dim : {32, 96, 192, 256})
    for (const std::int64_t seqlen : {2048, 8192})
      for (const int density : {60, 300})
        problems.push_back(masked(head_dim, 8, 2, seqlen, KeyLayout::reordered, density));
  for (const int head_dim : {32, 64, 96, 128, 192, 256}) {
    problems.push_back(windowed(head_dim, 2, 8192, 256));
    problems.push_back(windowed(head_dim, 2, 4096, 512));
    problems.push_back(windowed(head_dim, 1, 16384, 1024));
  }
  add_features(problems);
  return problems;
}

std::vector<Problem> sm90_held_back() {
  std::vector<Problem> problems;
  add_dense(problems, DataType::bf16, {64, 128},
            {{2, 8, 512}, {4, 8, 2048}, {1, 8, 6144}, {2, 16, 8192}, {1, 4, 24576}});
  add_dense(problems, DataType::bf16, {40, 80, 192, 256}, {{4, 16, 512}, {1, 12, 6144}});
  add_dense(problems, DataType::fp16, {128}, {{4, 16, 2048}, {1, 16, 8192}});
  for (const int head_dim : {64, 96, 128}) {
    problems.push_back(windowed(head_dim, 2, 8192, 512));
    problems.push_back(windowed(head_dim, 1, 16384, 4096));
  }
  for (const int head_dim : {64, 128}) {
    for (const std::int64_t seqlen : {3072, 6144, 12288}) {
      problems.push_back(masked(head_dim, 16, 4, seqlen, KeyLayout::reordered, 60));
      problems.push_back(masked(head_dim, 16, 4, seqlen, KeyLayout::reordered, 250));
    }
    const Problem usual = dense(DataType::bf16, head_dim, 1, 16, 16, 2048, true);
    problems.push_back(capped(usual));
    problems.push_back(deterministic(usual));
    problems.push_back(biased(usual, BiasKind::key_vector));
    problems.push_back(biased(dense(DataType::bf16, head_dim, 1, 8, 8, 3072, true), BiasKind::tile, true));
  }
  return problems;
}

}  // namespace

std::vector<Grid> all_grids() {
  return {{"smoke", "a few small problems of every kind", smoke},
          {"sm90", "dense, biased and masked problems of all head dims, from 256 to 32768 keys: what sm90 is tuned on",
           sm90},
          {"sm90-held-back", "problems between and beside those of sm90: what its table is judged by", sm90_held_back}};
}

}  // namespace flashdma_bwd::generator
