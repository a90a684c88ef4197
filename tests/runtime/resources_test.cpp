// The closed formulas of tiles of the Hopper family, of two CTAs and with a tile bias: shared memory, threads and
// registers, by hand, and which tiles are allowed.
#include <algorithm>
#include <cstdint>
#include <flashdma_bwd/kernel_resources.hpp>
#include <initializer_list>
#include <string>

#include "common/pieces.hpp"
#include "support/catch.hpp"
#include "tables.hpp"

namespace flashdma_bwd::testing {
namespace {

constexpr int kSharedMemoryOf90 = 227 * 1024;  // a block's: CUDA C++ Programming Guide, compute capability 9.0

KernelConfig pair(int head_dim, BiasKind bias, bool softcap = false) {
  KernelConfig config{Architecture::sm90, head_dim, DataType::bf16, bias, softcap, hopper_pair_tile()};
  config.tile.do_stages = head_dim > 192 ? 1 : 2;
  return config;
}

void check_aligned(const KernelConfig& config) {
  const HopperSharedMemory l = hopper_shared_memory(config);
  int begin = 0;
  for (const int part : {l.key, l.value, l.query, l.d_out, l.d_score, l.d_query, l.tile_bias}) {
    CHECK(begin % 1024 == 0);
    begin += part;
  }
  CHECK(begin % 1024 == 0);
  // What lies behind: 16 bytes at a time of P and of the statistics, 8 of the bias's sums and of the barriers.
  CHECK(l.probability % 16 == 0);
  CHECK(l.mask % 128 == 0);  // copied by TMA
  CHECK(l.statistics % 16 == 0);
  CHECK(l.bias % 16 == 0);
  CHECK(l.total() == begin + l.probability + l.mask + l.statistics + l.bias + l.state);
}

bool allowed(const TileConfig& tile, int head_dim) {
  return tile_shape_violation(tile, head_dim) == nullptr;
}

}  // namespace

TEST_CASE("shared memory of a pair at head dim 256, part by part") {
  const HopperSharedMemory l = hopper_shared_memory(pair(256, BiasKind::none));
  CHECK(l.key == 64 * 256 * 2 + 64 * 128 * 2);  // its own keys, and half the columns of the other's
  CHECK(l.value == 64 * 256 * 2);
  CHECK(l.query == 2 * 64 * 256 * 2);
  CHECK(l.d_out == 64 * 256 * 2);
  CHECK(l.d_score == (2 + 1) * 64 * 64 * 2);  // two of its own and one of the other's
  CHECK(l.d_query == 64 * (256 / 4) * 4);     // half of its half, in turn
  CHECK(l.probability == 64 * 64 * 2);
  CHECK(l.statistics == (2 + 1) * 64 * 4);
  CHECK(l.bias == 0);
  CHECK(l.state == 768);
  CHECK(l.mask == 2 * 64 * 8);  // the words of a CTA's 64 keys
  CHECK(l.total() == 231936);
}

TEST_CASE(
    "a pair at head dim 256 has room for a key bias and a softcap, or a tile bias, with less of dQ in shared memory") {
  CHECK(shared_memory_bytes(pair(256, BiasKind::none, true)) == 231936);
  CHECK(hopper_shared_memory(pair(256, BiasKind::key_vector)).bias == 64 * 4 + 128 * 2 * 4);
  CHECK(hopper_shared_memory(pair(256, BiasKind::key_vector)).mask == 0);  // no room
  CHECK(shared_memory_bytes(pair(256, BiasKind::key_vector)) == 232192);
  CHECK(hopper_shared_memory(pair(256, BiasKind::key_vector, true)).probability == 64 * 64 * 4);
  CHECK(hopper_shared_memory(pair(256, BiasKind::key_vector, true)).d_query == 64 * (256 / 8) * 4);
  CHECK(shared_memory_bytes(pair(256, BiasKind::key_vector, true)) == 232192);
  CHECK(hopper_shared_memory(pair(256, BiasKind::tile)).tile_bias == 64 * 64 * 2);
  CHECK(hopper_shared_memory(pair(256, BiasKind::tile)).d_query == 64 * (256 / 8) * 4);
  CHECK(hopper_shared_memory(pair(256, BiasKind::tile)).state == 1024);  // and the item whose zeros are written
  CHECK(hopper_shared_memory(pair(256, BiasKind::tile)).total() == 231168);
  CHECK(shared_memory_bytes(pair(256, BiasKind::tile, true)) == 231168);  // slopes take the place of biases
  CHECK(232192 <= kSharedMemoryOf90);
  CHECK(hopper_shared_memory(pair(192, BiasKind::tile)).d_query == 64 * (192 / 4) * 4);
}

TEST_CASE("the mask's words lie in shared memory where they fit and help") {
  const auto mask = [](int head_dim, int block_m, BiasKind bias, bool several_items, int q_stages) {
    TileConfig tile = pair(256, bias).tile;
    tile.cta_pair = false;
    tile.block_m = block_m;
    tile.several_items = several_items;
    tile.q_stages = tile.do_stages = q_stages;
    return hopper_shared_memory({Architecture::sm90, head_dim, DataType::bf16, bias, false, tile}).mask;
  };
  CHECK(mask(64, 128, BiasKind::none, false, 2) == 2 * 128 * 2 * 8);
  CHECK(mask(128, 64, BiasKind::key_vector, false, 2) == 2 * 64 * 2 * 8);
  CHECK(mask(128, 64, BiasKind::none, false, 2) == 0);
  CHECK(mask(64, 128, BiasKind::none, true, 2) == 0);
  CHECK(mask(64, 128, BiasKind::tile, false, 2) == 0);
  CHECK(mask(64, 128, BiasKind::key_vector, false, 3) == 0);  // no room
}

TEST_CASE("a pair at head dim 192 has two buffers of everything, with any bias that it reads") {
  const HopperSharedMemory l = hopper_shared_memory(pair(192, BiasKind::none));
  CHECK(l.key == 64 * 192 * 2 + 64 * 96 * 2);
  CHECK(l.value == 64 * 192 * 2);
  CHECK(l.query == 2 * 64 * 192 * 2);
  CHECK(l.d_out == 2 * 64 * 192 * 2);
  CHECK(l.d_score == (2 + 2) * 64 * 64 * 2);
  CHECK(l.d_query == 64 * (192 / 4) * 4);
  CHECK(l.statistics == (2 + 2) * 64 * 4);
  CHECK(l.mask == 2 * 64 * 8);
  CHECK(l.total() == 215808);
  CHECK(shared_memory_bytes(pair(192, BiasKind::key_vector)) == 217088);
  CHECK(shared_memory_bytes(pair(192, BiasKind::key_vector, true)) == 225280);
  CHECK(225280 <= kSharedMemoryOf90);
}

TEST_CASE("a tile bias makes the ring of dS longer by the room that there is, and by that of a key bias") {
  KernelConfig config{Architecture::sm90, 128, DataType::bf16, BiasKind::tile, false, hopper_tile()};
  const HopperSharedMemory l = hopper_shared_memory(config);
  CHECK(l.tile_bias == 2 * 64 * 128 * 2);
  CHECK(l.bias == 0);
  CHECK(l.total() == 3 * 64 * 1024 + 2 * 16384 + 4 * 64 * 4 + 1024);  // 32 KB each of K, V, Q, dO, dS and dQ
  CHECK(l.total() <= kSharedMemoryOf90);
  config.bias = BiasKind::none;
  CHECK(hopper_shared_memory(config).tile_bias == 0);
  config.bias = BiasKind::tile;
  config.head_dim = 96;
  CHECK(hopper_shared_memory(config).tile_bias == 2 * 64 * 128 * 2);  // more would fit
  config.tile.ds_stages = 4;
  CHECK(hopper_shared_memory(config).tile_bias == 0);
  config.tile.ds_stages = 2;
  config.head_dim = 64;
  CHECK(hopper_shared_memory(config).tile_bias == 2 * 64 * 128 * 2);
  config.tile.block_m = 128;
  CHECK(hopper_shared_memory(config).tile_bias == 128 * 128 * 2);
  CHECK(shared_memory_bytes(config) == 232448);
  CHECK(shared_memory_bytes(config) <= kSharedMemoryOf90);
  config.tile.q_stages = 3;
  CHECK(hopper_shared_memory(config).tile_bias == 128 * 128 * 2);  // too much then, as the total says
  CHECK(shared_memory_bytes(config) > kSharedMemoryOf90);
}

TEST_CASE(
    "a pair of CTAs that leaves dQ to another kernel has more buffers of Q and dO, and nothing of the other CTA") {
  for (const int head_dim : {192, 256}) {
    const KernelConfig config = pair(head_dim, BiasKind::tile);
    const HopperSharedMemory with = hopper_shared_memory(config);
    const HopperSharedMemory without = hopper_shared_memory(config, false);
    const int buffers = head_dim == 192 ? 3 : 2;
    CHECK(without.key == 64 * head_dim * 2);
    CHECK(without.query == buffers * 64 * head_dim * 2);
    CHECK(without.d_out == without.query);
    CHECK(without.d_query == 0);
    CHECK(without.d_score == 2 * 64 * 64 * 2);
    CHECK(without.statistics == 2 * buffers * 64 * 4);
    CHECK(without.tile_bias == with.tile_bias);
    CHECK(shared_memory_bytes(config) == std::max(with.total(), without.total()));
    CHECK(shared_memory_bytes(config) <= kSharedMemoryOf90);
  }
  // One more of either would not fit.
  CHECK(hopper_shared_memory(pair(192, BiasKind::tile), false).total() + 64 * 192 * 2 > kSharedMemoryOf90);
  CHECK(hopper_shared_memory(pair(256, BiasKind::tile), false).total() + 64 * 256 * 2 > kSharedMemoryOf90);
}

TEST_CASE("a kernel leaves dQ to another where a tile bias's gradient is dS, from 128 columns on") {
  CHECK(multiplies_bias_gradient(pair(256, BiasKind::tile)));
  CHECK_FALSE(multiplies_bias_gradient(pair(256, BiasKind::tile, true)));
  CHECK_FALSE(multiplies_bias_gradient(pair(256, BiasKind::key_vector)));
  KernelConfig config = pair(128, BiasKind::tile);
  config.tile.cta_pair = false;
  CHECK(multiplies_bias_gradient(config));
  config.head_dim = 96;
  CHECK_FALSE(multiplies_bias_gradient(config));
  config.head_dim = 128;
  config.tile.family = KernelFamily::ampere;
  CHECK_FALSE(multiplies_bias_gradient(config));
}

TEST_CASE("with a softcap a tile bias has a ring of its own, of two buffers beside those of dS") {
  KernelConfig config = pair(128, BiasKind::tile, true);
  config.tile.cta_pair = false;
  const HopperSharedMemory l = hopper_shared_memory(config);
  CHECK(l.d_score == 2 * 64 * 128 * 2);
  CHECK(l.tile_bias == 2 * 64 * 128 * 2);
  CHECK(l.total() == 231424);
  CHECK(l.total() <= kSharedMemoryOf90);
  config.tile.ds_stages = 4;
  CHECK(hopper_shared_memory(config).tile_bias == 2 * 64 * 128 * 2);  // too much then, as the total says
}

TEST_CASE("LSE and D are terms of products where there is room for them and something gained") {
  KernelConfig config{Architecture::sm90, 128, DataType::bf16, BiasKind::none, false, hopper_tile()};
  const auto terms = [&](auto&& change) {
    KernelConfig changed = config;
    change(changed);
    return has_statistic_terms(changed);
  };
  CHECK(terms([](KernelConfig&) {}));
  CHECK(terms([](KernelConfig& c) { c.tile.several_items = true; }));
  CHECK(terms([](KernelConfig& c) { c.bias = BiasKind::key_vector; }));
  CHECK_FALSE(terms([](KernelConfig& c) { c.bias = BiasKind::key_vector, c.tile.several_items = true; }));
  CHECK_FALSE(terms([](KernelConfig& c) { c.bias = BiasKind::key_vector, c.tile.ds_stages = 4; }));
  CHECK_FALSE(terms([](KernelConfig& c) { c.bias = BiasKind::tile; }));
  CHECK(terms([](KernelConfig& c) { c.softcap = true; }));
  CHECK_FALSE(terms([](KernelConfig& c) { c.tile.cta_pair = true; }));
  CHECK(terms([](KernelConfig& c) { c.head_dim = 64, c.bias = BiasKind::key_vector, c.tile.several_items = true; }));
  CHECK_FALSE(terms([](KernelConfig& c) { c.head_dim = 32; }));
  CHECK_FALSE(terms([](KernelConfig& c) { c.head_dim = 192; }));
  CHECK_FALSE(terms([](KernelConfig& c) { c.tile.family = KernelFamily::ampere; }));
  CHECK(hopper_shared_memory(config).statistics == config.tile.q_stages * 64 * 16);
  config.head_dim = 96;
  CHECK_FALSE(terms([](KernelConfig&) {}));
  CHECK(terms([](KernelConfig& c) { c.bias = BiasKind::key_vector; }));
  CHECK(terms([](KernelConfig& c) { c.tile.several_items = true; }));
  CHECK(terms([](KernelConfig& c) { c.bias = BiasKind::key_vector, c.tile.several_items = true; }));
  CHECK_FALSE(terms([](KernelConfig& c) { c.softcap = true, c.tile.several_items = true; }));
  CHECK_FALSE(terms([](KernelConfig& c) { c.softcap = true, c.bias = BiasKind::key_vector; }));
  CHECK_FALSE(terms([](KernelConfig& c) { c.bias = BiasKind::tile, c.tile.several_items = true; }));
  CHECK(hopper_shared_memory(config).statistics == (config.tile.q_stages + config.tile.do_stages) * 64 * 4);
}

TEST_CASE("a softcap's weights are handed over as fp16 by pairs of CTAs without a bias alone") {
  KernelConfig config{Architecture::sm90, 256, DataType::bf16, BiasKind::none, true, hopper_tile()};
  config.tile.cta_pair = true;
  const auto scale = [&](auto&& change) {
    KernelConfig changed = config;
    change(changed);
    return tanh_scale(changed);
  };
  CHECK(scale([](KernelConfig&) {}) * scale([](KernelConfig&) {}) == kPackedWeightScale);
  CHECK(scale([](KernelConfig& c) { c.softcap = false; }) == 1.0f);
  CHECK(scale([](KernelConfig& c) { c.bias = BiasKind::key_vector; }) == 1.0f);
  CHECK(scale([](KernelConfig& c) { c.tile.cta_pair = false; }) == 1.0f);
  CHECK(scale([](KernelConfig& c) { c.tile.family = KernelFamily::ampere; }) == 1.0f);
}

TEST_CASE("K lies twice in shared memory for CTAs that take several items") {
  KernelConfig config{Architecture::sm90, 128, DataType::bf16, BiasKind::none, false, hopper_tile()};
  CHECK(hopper_shared_memory(config).key == 128 * 128 * 2);
  config.tile.several_items = true;
  const HopperSharedMemory l = hopper_shared_memory(config);
  CHECK(l.key == 2 * 128 * 128 * 2);
  CHECK(l.value == 128 * 128 * 2);
  // 32 KB each of V, Q, dO, dS and dQ, and twice of K; the terms of LSE and D of two tiles of Q.
  CHECK(l.total() == 7 * 32 * 1024 + 2 * 64 * 16 + 1024);
  check_aligned(config);
  config.bias = BiasKind::key_vector;
  CHECK(hopper_shared_memory(config).bias == 2 * 128 * 4);
  CHECK(shared_memory_bytes(config) == kSharedMemoryOf90);  // all that there is
  config.bias = BiasKind::none;
  config.tile.q_stages = 3;
  CHECK(shared_memory_bytes(config) > kSharedMemoryOf90);
}

TEST_CASE("threads, keys and registers of a pair are those of one of its CTAs") {
  const KernelConfig config = pair(256, BiasKind::none);
  CHECK(threads_per_block(config.tile) == 384);
  CHECK(keys_per_block(config.tile) == 64);
  CHECK(blocks_per_item(config.tile) == 2);
  CHECK(resident_accumulator_registers(config) == 64 * 256 / 128);  // a warpgroup has dK, the other dV
  CHECK(step_accumulator_registers(config) == 64 * 64 / 128);       // S, or dP; of dQ a quarter
  CHECK(estimated_registers(config) <= available_registers(config.tile));
  CHECK(resident_accumulator_registers(pair(192, BiasKind::none)) == 64 * 192 / 128);
  CHECK(keys_per_block(hopper_tile()) == 128);
  CHECK(blocks_per_item(hopper_tile()) == 1);
}

TEST_CASE("parts of shared memory that TMA and wgmma use begin at multiples of 1024 bytes") {
  for (const int head_dim : kHeadDimBuckets)
    for (const BiasKind bias : kBiasKinds)
      for (const bool softcap : {false, true})
        for (const int block_m : {64, 128})
          for (const int q_stages : {2, 3})
            for (const int do_stages : {1, 2, 3}) {
              KernelConfig config = pair(head_dim, bias, softcap);
              config.tile.cta_pair = head_dim > 128;
              config.tile.block_m = block_m;
              config.tile.q_stages = q_stages;
              config.tile.do_stages = do_stages;
              if (!allowed(config.tile, head_dim)) continue;
              INFO(head_dim << ' ' << block_m << ' ' << q_stages << ' ' << do_stages);
              check_aligned(config);
            }
}

TEST_CASE("two CTAs share an item where head_dim is above 128, and only there") {
  for (const int head_dim : kHeadDimBuckets) {
    INFO(head_dim);
    TileConfig tile = hopper_tile();
    CHECK(allowed(tile, head_dim) == (head_dim <= 128));
    tile.do_stages = 1;
    CHECK_FALSE(allowed(tile, head_dim));
    tile = hopper_pair_tile();
    for (const int do_stages : {1, 2, 3}) {
      tile.do_stages = do_stages;
      CHECK(allowed(tile, head_dim) == (head_dim > 128));
    }
    tile.do_stages = 0;
    CHECK_FALSE(allowed(tile, head_dim));
    tile.do_stages = 2;
    tile.block_m = 128;
    CHECK_FALSE(allowed(tile, head_dim));
  }
}

TEST_CASE("transposed gradients: 96 keys where head_dim is 192, one buffer of dO and two of dS or the reverse") {
  for (const int head_dim : kHeadDimBuckets)
    for (const int block_m : {64, 128})
      for (const int q_stages : {2, 3})
        for (const int do_stages : {0, 1, 2, 3})
          for (const int ds_stages : {0, 1, 2, 4}) {
            INFO(head_dim << ' ' << block_m << ' ' << q_stages << ' ' << do_stages << ' ' << ds_stages);
            TileConfig tile = hopper_tile();
            tile.block_m = block_m;
            tile.block_n = 96;
            tile.q_stages = q_stages;
            tile.do_stages = do_stages;
            tile.ds_stages = ds_stages;
            const bool fits = head_dim == 192 && block_m == 64 && q_stages == 2 && do_stages >= 1 && ds_stages >= 1 &&
                              do_stages + ds_stages == 3;
            CHECK(allowed(tile, head_dim) == fits);
            tile.cta_pair = true;
            CHECK_FALSE(allowed(tile, head_dim));
            tile.cta_pair = false;
            tile.several_items = true;
            CHECK_FALSE(allowed(tile, head_dim));
            tile.several_items = false;
            tile.skip_empty_halves = true;
            CHECK_FALSE(allowed(tile, head_dim));
            tile.skip_empty_halves = false;
            if (!fits) continue;
            KernelConfig config{Architecture::sm90, 192, DataType::bf16, BiasKind::key_vector, false, tile};
            CHECK(resident_accumulator_registers(config) == 144);
            CHECK(estimated_registers(config) == 232);
            CHECK(hopper_shared_memory(config).mask == 2 * 64 * 2 * 8);
            CHECK(shared_memory_bytes(config) <= kSharedMemoryOf90);
            check_aligned(config);
            config.softcap = true;
            CHECK(shared_memory_bytes(config) > kSharedMemoryOf90);
          }
}

TEST_CASE("CTAs that run at once on a multiprocessor") {
  const auto blocks = [](int warps, int keys, int shared_memory) {
    KernelConfig config{Architecture::sm80, 64, DataType::bf16, BiasKind::none, false, {}};
    config.tile = {.block_m = 128, .block_n = keys, .warps = warps, .q_stages = 1, .do_stages = 1};
    return blocks_per_multiprocessor(config, {80, 108, shared_memory});
  };
  // K, V, Q, dO, P, dS, statistics, positions, bias and state of 64 keys.
  constexpr int kBytes = 2 * 8192 + 4 * 16384 + 2048 + 3 * 256;
  CHECK(blocks(4, 64, kBytes) == 1);
  CHECK(blocks(4, 64, 2 * kBytes) == 1);  // and 1 KB for the second CTA
  CHECK(blocks(4, 64, 2 * kBytes + 1024) == 2);
  CHECK(blocks(4, 64, 4 * kBytes) == 2);  // 128 threads of 255 registers
  CHECK(blocks(8, 64, 4 * kBytes) == 1);
  CHECK(blocks_per_multiprocessor(pair(192, BiasKind::none), {90, 132, kSharedMemoryOf90}) == 1);
}

// What the README's Limits say of it.
TEST_CASE("the room for pieces of one launch on an H200 is 78 MB at most") {
  constexpr DeviceTraits kH200 = kH100;
  std::int64_t most = 0;
  for (const Row& row : generated_rows()) {
    if (row.architecture != Architecture::sm90) continue;
    const KernelConfig config{row.architecture, row.when.head_dim, DataType::bf16, BiasKind::none, false, row.use};
    const int running = kH200.sm_count * blocks_per_multiprocessor(config, kH200) / blocks_per_item(row.use);
    const std::int64_t slot_bytes = std::int64_t{2} * row.use.block_n * row.when.head_dim * 4;  // of dK and dV
    most = std::max(most, std::int64_t{kSlotsPerRunningItem} * running * slot_bytes);
  }
  CHECK(most > 77'000'000);
  CHECK(most < 78'000'000);
}

}  // namespace flashdma_bwd::testing
