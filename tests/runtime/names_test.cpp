// Canonical names: printing and parsing are symmetric, and nothing but canonical texts is parsed.
#include <algorithm>
#include <cctype>
#include <flashdma_bwd/kernel_resources.hpp>
#include <set>
#include <tuple>
#include <utility>

#include "selection/configuration_name.hpp"
#include "support/catch.hpp"
#include "tables.hpp"

namespace flashdma_bwd::testing {
namespace {

void add_if_allowed(std::vector<TileConfig>& tiles, const TileConfig& tile) {
  if (std::any_of(std::begin(kHeadDimBuckets), std::end(kHeadDimBuckets),
                  [&](int head_dim) { return tile_shape_violation(tile, head_dim) == nullptr; }))
    tiles.push_back(tile);
}

/// Every tile that the divisibility rules allow for some head dim.
std::vector<TileConfig> all_tiles() {
  std::vector<TileConfig> tiles;
  for (int block_m : {32, 64, 128})
    for (int block_n : {32, 64, 128})
      for (int warps : {4, 8})
        for (int score : {1, 2, 4, 8})
          for (int dkv : {1, 2, 4, 8})
            for (int dq : {1, 2, 4, 8})
              for (int stages : {0, 1, 2, 3})
                for (bool in_registers : {false, true}) {
                  const TileConfig tile{KernelFamily::ampere, block_m,        block_n,     warps, score, dkv, dq,
                                        1 + stages / 2,       1 + stages % 2, in_registers};
                  add_if_allowed(tiles, tile);
                }
  for (int block_m : {64, 128})
    for (int q_stages : {2, 3})
      for (int do_stages : {1, 2, 3})
        for (int producer = 24; producer <= 504; producer += 8)
          for (int consumer = 0; consumer <= 256; consumer += 8)
            for (const auto& [pair, several, halves] : {std::tuple{false, false, false},
                                                        {false, true, false},
                                                        {true, false, false},
                                                        {false, false, true},
                                                        {false, true, true}}) {
              TileConfig tile = hopper_tile();
              tile.block_m = block_m;
              tile.q_stages = q_stages;
              tile.do_stages = do_stages;
              tile.producer_registers = producer;
              tile.consumer_registers = consumer;
              tile.cta_pair = pair;
              tile.several_items = several;
              tile.skip_empty_halves = halves;
              add_if_allowed(tiles, tile);
            }
  for (const int do_stages : {1, 2}) {
    TileConfig tile = hopper_tile();
    tile.block_n = 96;
    tile.do_stages = do_stages;
    tile.ds_stages = 3 - do_stages;
    add_if_allowed(tiles, tile);
  }
  return tiles;
}

}  // namespace

TEST_CASE("tile names round trip and differ") {
  std::set<std::string> names;
  const std::vector<TileConfig> tiles = all_tiles();
  REQUIRE(tiles.size() > 1000);
  REQUIRE(std::any_of(tiles.begin(), tiles.end(), [](const TileConfig& tile) { return tile.cta_pair; }));
  REQUIRE(std::any_of(tiles.begin(), tiles.end(), [](const TileConfig& tile) { return tile.several_items; }));
  REQUIRE(std::any_of(tiles.begin(), tiles.end(), [](const TileConfig& tile) { return tile.skip_empty_halves; }));
  REQUIRE(std::any_of(tiles.begin(), tiles.end(), [](const TileConfig& tile) { return tile.block_n == 96; }));
  for (const TileConfig& tile : tiles) {
    const std::string name = tile_name(tile);
    const Parsed<TileConfig> parsed = parse_tile_name(name);
    INFO(name << ": " << parsed.error);
    REQUIRE(parsed);
    REQUIRE(*parsed.value == tile);
    REQUIRE(names.insert(name).second);
  }
}

TEST_CASE("configuration names round trip, differ, are identifiers and fit the buffer without an allocation") {
  std::set<std::string> names;
  for (const TileConfig& tile : all_tiles())
    for (const Architecture architecture : kArchitectures)
      for (const int head_dim : kHeadDimBuckets) {
        if (tile_shape_violation(tile, head_dim) != nullptr) continue;
        for (const DataType type : kDataTypes)
          for (const BiasKind bias : kBiasKinds)
            for (const bool softcap : {false, true}) {
              const KernelConfig config{architecture, head_dim, type, bias, softcap, tile};
              const std::string name = configuration_name(config);
              const Parsed<KernelConfig> parsed = parse_configuration_name(name);
              const bool identifier = std::all_of(name.begin(), name.end(),
                                                  [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
              if (!parsed || *parsed.value != config || NameBuffer(config).view() != name || !identifier) {
                INFO(name << ": " << parsed.error);
                FAIL("does not round trip");
              }
              if (names.size() < 100000) REQUIRE(names.insert(name).second);
            }
      }
}

TEST_CASE("a canonical name has the documented form") {
  const KernelConfig config{Architecture::sm90,   128,  DataType::bf16,
                            BiasKind::key_vector, true, {KernelFamily::ampere, 64, 128, 8, 2, 4, 2, 2, 1, true}};
  CHECK(configuration_name(config) == "bwd_sm90_d128_bf16_ampere_m64n128_w8_s2_kv4_dq2_q2_do1_vreg_keybias_softcap");
  CHECK(configuration_name({Architecture::sm90, 128, DataType::fp16, BiasKind::none, false, hopper_tile()}) ==
        "bwd_sm90_d128_fp16_hopper_m64n128_wg2_q2_do2_ds2_r24c240_nobias");
  CHECK(configuration_name({Architecture::sm90, 256, DataType::bf16, BiasKind::key_vector, true, hopper_pair_tile()}) ==
        "bwd_sm90_d256_bf16_hopper_m64n128_wg2_q2_do1_ds2_r40c232_pair_keybias_softcap");
}

TEST_CASE("texts that are not canonical are refused, and the error shows where") {
  const std::pair<const char*, const char*> cases[] = {
      {"", "`bwd_` at the end"},
      {"fwd_sm90", "`fwd_sm90`"},
      {"bwd_sm75_d128_bf16_ampere_m64n128_w8_s2_kv4_dq2_q2_do1_nobias", "`sm75_d128"},
      {"bwd_sm90_d0128_bf16_ampere_m64n128_w8_s2_kv4_dq2_q2_do1_nobias", "a head dim at `0128"},
      {"bwd_sm90_d-8_bf16_ampere_m64n128_w8_s2_kv4_dq2_q2_do1_nobias", "a head dim at `-8"},
      {"bwd_sm90_d99999999999_bf16_ampere_m64n128_w8_s2_kv4_dq2_q2_do1_nobias", "a head dim at `99999999999"},
      {"bwd_sm90_d128_fp32_ampere_m64n128_w8_s2_kv4_dq2_q2_do1_nobias", "`fp16` or `bf16` at `fp32"},
      {"bwd_sm90_d128_bf16_volta_m64n128_w8_s2_kv4_dq2_q2_do1_nobias",
       "expected a kernel family, `ampere` or `hopper`, at `volta_m64"},
      {"bwd_sm90_d128_bf16_hopper_m64n128_w8_s2_kv4_dq2_q2_do1_nobias", "`_wg<number>` at `_w8"},
      {"bwd_sm90_d128_bf16_ampere_m64n128_wg2_q2_do2_ds2_r24c240_nobias", "`_w<number>` at `_wg2"},
      {"bwd_sm90_d128_bf16_hopper_m64n128_wg2_q2_do2_ds2_r24_nobias", "`c<number>` at `_nobias"},
      {"bwd_sm90_d128_bf16_hopper_m64n128_wg2_q2_do2_ds2_r24c240_vreg_nobias", "`_nobias`, `_keybias` or `_tilebias`"},
      {"bwd_sm90_d256_bf16_hopper_m64n128_wg2_q2_do1_ds2_pair_r40c232_nobias", "`_r<number>` at `_pair"},
      {"bwd_sm90_d256_bf16_hopper_m64n128_wg2_q2_do1_ds2_r40c232_nobias_pair", "`_pair`"},
      {"bwd_sm90_d256_bf16_hopper_m64n128_wg2_q2_do1_ds2_r40c232_pair_pair_nobias", "at `_pair_nobias"},
      {"bwd_sm90_d256_bf16_hopper_m64n128_wg2_q2_do1_ds2_r40c232_pair2_nobias", "at `2_nobias"},
      {"bwd_sm90_d256_bf16_ampere_m64n64_w8_s2_kv2_dq2_q2_do2_pair_nobias", "`_tilebias` at `_pair"},
      {"bwd_sm90_d128_bf16_ampere_m64n128_w8_kv4_dq2_q2_do1_nobias", "`_s<number>` at `_kv4"},
      {"bwd_sm90_d128_bf16_ampere_m64n128_w8_s2_kv4_dq2_q2_do1", "`_nobias`"},
      {"bwd_sm90_d128_bf16_ampere_m64n128_w8_s2_kv4_dq2_q2_do1_nobias_vreg", "`_vreg`"},
      {"bwd_sm90_d128_bf16_ampere_m64n128_w8_s2_kv4_dq2_q2_do1_nobias ", "` `"},
  };
  for (const auto& [text, where] : cases) {
    const Parsed<KernelConfig> parsed = parse_configuration_name(text);
    INFO(text << ": " << parsed.error);
    CHECK_FALSE(parsed);
    CHECK(parsed.error.find(where) != std::string::npos);
  }
}

TEST_CASE("cutting a name anywhere makes it another text") {
  for (const std::string name : {"bwd_sm80_d64_fp16_ampere_m64n64_w8_s4_kv4_dq2_q2_do1_nobias",
                                 "bwd_sm90_d64_fp16_hopper_m128n128_wg2_q2_do2_ds2_r24c240_nobias",
                                 "bwd_sm90_d256_fp16_hopper_m64n128_wg2_q2_do1_ds2_r40c232_pair_nobias"}) {
    REQUIRE(parse_configuration_name(name));
    for (std::size_t length = 0; length < name.size(); ++length)
      CHECK_FALSE(parse_configuration_name(name.substr(0, length)));
  }
}

}  // namespace flashdma_bwd::testing
