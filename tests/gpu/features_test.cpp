// Bias, shared KV heads, packed sequences, strides, softcap and windows.
#include <cstdint>
#include <limits>
#include <set>
#include <string>

#include "gpu/check.hpp"
#include "gpu/device_problem.hpp"
#include "gpu/kernels_under_test.hpp"
#include "support/catch.hpp"

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

namespace {

ProblemSpec problem(int head_dim = 64) {
  ProblemSpec spec;
  spec.head_dim = head_dim;
  spec.batch = 2;
  spec.heads = 4;
  spec.heads_kv = 2;
  spec.seqlen_q = 150;
  spec.seqlen_k = 200;
  return spec;
}

const MaskSpec kHalf = {.structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv}};
const MaskSpec kBlocks = {.structure = MaskStructure::block_sparse, .probability = 0.4};
const MaskSpec kActiveKeys = {.structure = MaskStructure::bernoulli, .shape = {.heads = PairHeads::kv, .rows = false}};

}  // namespace

TEST_CASE("every broadcast of a bias", "[bias]") {
  for (bool batch : {false, true})
    for (PairHeads heads : {PairHeads::one, PairHeads::kv, PairHeads::query})
      for (bool rows : {false, true})
        for (bool columns : {false, true})
          for (const MaskSpec& mask : {MaskSpec{}, kBlocks, kActiveKeys})
            for (bool deterministic : {false, true}) {
              ProblemSpec spec = problem();
              spec.bias = {.present = true, .shape = {batch, heads, rows, columns}};
              spec.mask = mask;
              spec.deterministic = deterministic;
              spec.random_out = !columns;  // else dBias, the sum of whole rows of dS, is 0
              check_both_types(spec, deterministic ? Kernels::the_table : Kernels::every);
            }
}

TEST_CASE("a key vector of float32, and dBias of float32", "[bias]") {
  for (int head_dim : {32, 64, 128, 256}) {
    ProblemSpec spec = problem(head_dim);
    spec.bias = {.present = true, .shape = {.heads = PairHeads::kv, .rows = false}, .fp32 = true};
    check_both_types(spec);
    spec.bias.fp32 = false;
    spec.bias.gradient_fp32 = true;
    check_both_types(spec);
    spec.bias.shape.rows = true;
    check_both_types(spec);
    spec.bias.shape.heads = PairHeads::query;
    spec.mask = kBlocks;
    check_both_types(spec);
  }
}

TEST_CASE("a bias without its gradient, and one of odd strides", "[bias]") {
  ProblemSpec spec = problem();
  spec.bias = {.present = true, .gradient = false};
  check_both_types(spec);
  spec.bias.shape.rows = false;
  check_both_types(spec);
  for (bool rows : {false, true}) {
    spec.bias = {.present = true, .shape = {.rows = rows}, .row_padding = 3, .gradient_row_padding = 1};
    spec.seqlen_k = 201;
    check_both_types(spec);
  }
}

TEST_CASE("a bias of minus infinity masks", "[bias]") {
  for (bool rows : {false, true})
    for (double probability : {0.3, 0.99, 1.1}) {
      ProblemSpec spec = problem();
      spec.bias = {.present = true, .shape = {.rows = rows}, .minus_infinity = probability};
      check_both_types(spec);
      spec.softcap = 4.0f;
      check_both_types(spec);
      spec.mask = kHalf;
      check_both_types(spec);
    }
}

namespace {

/// Of a call without pairs, whose gradients are exactly those of the CPU backend. `change`: the arguments on the
/// device.
template <class Change>
void check_without_pairs(const ProblemSpec& spec, const Change& change) {
  testing::Problem problem(spec);
  const Gradients expected = exact_gradients(problem);
  DeviceProblem device(problem);
  change(device.arguments());
  std::string defect;
  const Status status = device.run(defect);
  INFO(spec.text() << ' ' << status.message());
  REQUIRE(status.ok());
  CHECK(defect == "");
  CHECK(gradient_errors(problem, read_gradients(problem), expected).largest() == 0);
}

}  // namespace

TEST_CASE("the gradient of a bias without queries, without keys, and without both", "[bias]") {
  for (const bool packed : {false, true})
    for (const std::int64_t seqlen_q : {0, 150})
      for (const std::int64_t seqlen_k : {0, 200}) {
        if (seqlen_q > 0 && seqlen_k > 0) continue;
        for (const bool batch : {false, true})
          for (const PairHeads heads : {PairHeads::one, PairHeads::kv, PairHeads::query})
            for (const bool rows : {false, true})
              for (const bool columns : {false, true}) {
                ProblemSpec spec = problem(128);
                spec.seqlen_q = seqlen_q;
                spec.seqlen_k = seqlen_k;
                if (packed) spec.lengths_q.assign(2, static_cast<std::int32_t>(seqlen_q));
                if (packed) spec.lengths_k.assign(2, static_cast<std::int32_t>(seqlen_k));
                spec.bias = {.present = true, .shape = {batch, heads, rows, columns}};
                spec.deterministic = batch;
                if (seqlen_q > 0 || seqlen_k > 0)
                  check_problem(spec);
                else
                  check_without_pairs(spec, [](Arguments&) {});  // no kernel is chosen
              }
      }
}

// As a framework has empty tensors: without an address, and with strides that nobody has looked at.
TEST_CASE("without queries their tensors need no memory", "[bias]") {
  std::set<int> head_dims;
  for (const KernelName& kernel : kernels_under_test()) head_dims.insert(problem_for(kernel).head_dim);
  for (const int head_dim : head_dims)
    for (const bool packed : {false, true})
      for (const bool bias : {false, true}) {
        ProblemSpec spec = problem(head_dim);
        spec.data_type = FLASHDMA_BWD_BF16;
        spec.seqlen_q = 0;
        if (packed) spec.lengths_q = {0, 0};
        if (packed) spec.lengths_k = {200, 70};
        spec.bias = {.present = bias, .shape = {.rows = false}};
        check_without_pairs(spec, [&](Arguments& a) {
          for (flashdma_bwd_tensor* tensor : {&a.q, &a.out, &a.d_out, &a.d_q}) {
            tensor->data = nullptr;
            tensor->stride_batch = tensor->stride_head = packed ? 0 : 3;
          }
          a.lse = nullptr;
        });
      }
}

TEST_CASE("shared KV heads", "[gqa]") {
  struct Heads {
    std::int64_t heads, heads_kv;
  };
  for (const Heads& count :
       {Heads{1, 1}, Heads{2, 1}, Heads{6, 2}, Heads{6, 3}, Heads{8, 1}, Heads{16, 1}, Heads{16, 4}, Heads{5, 5}})
    for (int head_dim : {64, 128}) {
      ProblemSpec spec = problem(head_dim);
      spec.heads = count.heads;
      spec.heads_kv = count.heads_kv;
      check_both_types(spec);
      for (PairHeads heads : {PairHeads::one, PairHeads::kv, PairHeads::query})
        for (bool rows : {false, true}) {
          spec.mask = {
              .structure = MaskStructure::bernoulli, .shape = {.heads = heads, .rows = rows}, .probability = 0.3};
          check_problem(spec, Kernels::the_table);
          spec.deterministic = rows;
          spec.bias = {.present = true, .shape = {.heads = heads, .rows = !rows}};
          check_problem(spec, Kernels::the_table);
          spec.bias.present = spec.deterministic = false;
        }
    }
}

TEST_CASE("few work items and many share KV heads alike", "[gqa]") {
  ProblemSpec spec = problem();
  spec.heads = 32;
  spec.heads_kv = 8;
  spec.batch = 8;
  spec.seqlen_q = 64;
  spec.seqlen_k = 1100;  // enough key tiles to keep a large GPU busy with one item for each KV head
  check_problem(spec);
  spec.mask = kActiveKeys;
  spec.data_type = FLASHDMA_BWD_FP16;
  check_problem(spec);
}

TEST_CASE("packed sequences", "[varlen]") {
  struct Lengths {
    std::vector<std::int32_t> q, k;
  };
  std::vector<std::int32_t> short_q, short_k;
  for (int i = 0; i < 60; ++i) {
    short_q.push_back(i * 7 % 23);
    short_k.push_back(i * 5 % 31);
  }
  const Lengths all_lengths[] = {{{100}, {130}},
                                 {{64, 128, 1}, {128, 64, 1}},
                                 {{70, 0, 129, 5, 64}, {100, 30, 64, 0, 65}},
                                 {{0, 0, 333}, {0, 10, 200}},
                                 {short_q, short_k}};
  for (const Lengths& lengths : all_lengths)
    for (bool causal : {false, true})
      for (int head_dim : {40, 128}) {
        ProblemSpec spec = problem(head_dim);
        spec.lengths_q = lengths.q;
        spec.lengths_k = lengths.k;
        spec.causal = causal;
        check_both_types(spec);
        spec.length_margin = 77;
        check_problem(spec, Kernels::the_table);
        spec.length_margin = 0;
        spec.deterministic = true;
        check_problem(spec);
        for (const MaskSpec& mask : {kHalf, kBlocks, kActiveKeys}) {
          spec.mask = mask;
          spec.deterministic = false;
          check_problem(spec);
          spec.mask.shape.batch = !causal;
          spec.bias = {.present = true, .shape = {.batch = causal, .heads = PairHeads::kv, .rows = causal}};
          check_both_types(spec);
          spec.bias.present = false;
        }
      }
}

TEST_CASE("packed rows past the last sequence get zeros", "[varlen]") {
  for (bool deterministic : {false, true}) {
    ProblemSpec spec = problem(128);
    spec.lengths_q = {70, 0, 30};
    spec.lengths_k = {65, 90, 1};
    spec.packed_tail = 150;
    spec.deterministic = deterministic;
    check_both_types(spec);
    spec.heads = spec.heads_kv;
    check_both_types(spec);
    spec.mask = kActiveKeys;
    check_both_types(spec);
  }
}

TEST_CASE("packed sequences without any query", "[varlen]") {
  ProblemSpec spec = problem();
  spec.lengths_q = {0, 0};
  spec.lengths_k = {5, 70};
  check_both_types(spec);
}

TEST_CASE("strides of every kind", "[strides]") {
  for (int head_dim : {24, 64, 128}) {
    ProblemSpec spec = problem(head_dim);
    spec.mask = kHalf;
    spec.mask.row_padding = 7;
    spec.bias = {.present = true, .row_padding = 2, .gradient_row_padding = 5};
    spec.inputs = {.row_padding = 8, .batch_padding = 8, .shift = 8};
    spec.outputs = {.heads_outer = true, .row_padding = 24, .shift = 8};
    spec.lse = {.row_padding = 10};
    check_both_types(spec);
    std::swap(spec.inputs, spec.outputs);
    spec.lse = {.heads_inner = true, .row_padding = 1, .base_two = true};
    check_both_types(spec);
    spec.broadcast_d_out_rows = true;
    check_both_types(spec);
    spec.lengths_q = {70, 0, 33};
    spec.lengths_k = {64, 9, 100};
    check_both_types(spec);
  }
}

namespace {

/// The sizes of the whole problem and strides of 0 instead of the size 1.
void broadcast_by_strides(const flashdma_bwd_arguments& a, flashdma_bwd_pair_tensor& t) {
  if (t.batch == 1) t.batch = a.batch, t.stride_batch = 0;
  if (t.heads == 1) t.heads = a.heads, t.stride_head = 0;
  if (t.rows == 1) t.rows = a.seqlen_q, t.stride_row = 0;
}

}  // namespace

TEST_CASE("a mask and a bias that strides of 0 broadcast", "[strides]") {
  for (int head_dim : {64, 128})
    for (bool rows : {false, true})
      for (flashdma_bwd_data_type type : {FLASHDMA_BWD_FP16, FLASHDMA_BWD_BF16}) {
        ProblemSpec spec = problem(head_dim);
        spec.data_type = type;
        spec.mask = kHalf;
        spec.mask.shape = {.batch = false, .heads = PairHeads::one, .rows = rows};
        spec.bias = {.present = true, .shape = spec.mask.shape, .gradient = false};
        testing::Problem host(spec);
        broadcast_by_strides(host.arguments(), host.arguments().mask);
        broadcast_by_strides(host.arguments(), host.arguments().bias);
        check_prepared_problem(host);
      }
}

// The gradient's elements are then more than the bias's. LSE and O are of a forward with a bias for each head: the
// backward does not ask.
TEST_CASE("a bias that strides of 0 broadcast, and a gradient that they do not", "[strides]") {
  for (int head_dim : {64, 128})
    for (bool rows : {false, true}) {
      ProblemSpec spec = problem(head_dim);
      spec.mask = kHalf;
      spec.bias = {.present = true, .shape = {.rows = rows}};
      testing::Problem host(spec);
      host.arguments().bias.stride_batch = host.arguments().bias.stride_head = 0;
      check_prepared_problem(host);
    }
}

TEST_CASE("empty rows have an LSE of plus or minus infinity", "[strides]") {
  for (bool plus : {false, true})
    for (bool base_two : {false, true}) {
      ProblemSpec spec = problem();
      spec.mask = {.structure = MaskStructure::empty_rows};
      spec.lse = {.base_two = base_two, .empty_is_plus_infinity = plus};
      check_both_types(spec);
    }
}

TEST_CASE("softcap", "[softcap]") {
  for (int head_dim : {32, 64, 96, 128, 192, 256})
    for (float cap : {0.5f, 30.0f})
      for (bool rows : {false, true}) {
        ProblemSpec spec = problem(head_dim);
        spec.softcap = cap;
        spec.causal = rows;
        check_both_types(spec);
        spec.bias = {.present = true, .shape = {.rows = rows}};
        spec.mask = kHalf;
        check_both_types(spec);
        if (!rows) continue;
        spec.bias.shape.heads = PairHeads::query;
        check_both_types(spec);
        spec.bias.gradient = false;
        check_both_types(spec);
      }
}

TEST_CASE("causality and windows, aligned bottom-right", "[window]") {
  struct Limits {
    std::int64_t seqlen_q, seqlen_k;
    bool causal;
    std::int64_t left, right;
  };
  for (const Limits& limits :
       {Limits{100, 300, true, -1, -1}, Limits{300, 100, true, -1, -1}, Limits{129, 128, true, -1, -1},
        Limits{64, 64, true, -1, -1}, Limits{300, 300, false, 50, 20}, Limits{300, 300, false, -1, 20},
        Limits{300, 300, false, 20, -1}, Limits{150, 400, false, 0, 64}, Limits{400, 150, false, 64, 0},
        Limits{300, 300, true, 70, -1}, Limits{300, 300, true, 127, 500}, Limits{1, 500, true, 63, -1},
        Limits{500, 1, true, -1, -1}, Limits{300, 300, false, 1000000000000, 1000000000000},
        Limits{300, 200, false, std::numeric_limits<std::int64_t>::max(), std::numeric_limits<std::int64_t>::max()}})
    for (int head_dim : {64, 128}) {
      ProblemSpec spec = problem(head_dim);
      // With one key a causal row is the only one that sees it: enough of them that their roundings average out.
      spec.batch = limits.seqlen_k == 1 ? 32 : 1;
      spec.seqlen_q = limits.seqlen_q;
      spec.seqlen_k = limits.seqlen_k;
      spec.causal = limits.causal;
      spec.window_left = limits.left;
      spec.window_right = limits.right;
      spec.random_out = limits.seqlen_k == 1;
      check_both_types(spec);
      spec.deterministic = true;
      spec.mask = kBlocks;
      check_problem(spec);
      spec.mask = kActiveKeys;
      check_problem(spec);
    }
}

TEST_CASE("a single visible key in each row", "[window]") {
  ProblemSpec spec = problem();
  spec.seqlen_k = spec.seqlen_q;
  spec.window_left = spec.window_right = 0;
  spec.random_out = true;
  check_both_types(spec);
}

TEST_CASE("shards of longer sequences", "[window]") {
  struct Shard {
    std::int64_t query_offset, key_offset, global_q, global_k;
  };
  for (const Shard& shard : {Shard{150, 0, 300, 300}, Shard{0, 200, 300, 400}, Shard{1000, 900, 4096, 4096},
                             Shard{0, 4000, 8000, 8000}, Shard{3000000000, 2999999950, 4000000000, 4000000000}})
    for (bool causal : {false, true}) {
      ProblemSpec spec = problem(128);
      spec.causal = causal;
      if (!causal) spec.window_left = spec.window_right = 90;
      spec.query_offset = shard.query_offset;
      spec.key_offset = shard.key_offset;
      spec.global_seqlen_q = shard.global_q;
      spec.global_seqlen_k = shard.global_k;
      check_both_types(spec);
      spec.mask = kHalf;
      check_problem(spec);
      spec.mask = kActiveKeys;
      check_problem(spec);
    }
}
