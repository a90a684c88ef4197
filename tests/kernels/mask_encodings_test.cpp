// Plans of masks in every encoding, built by the plan kernels on the host, against those of the same mask as bytes.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <optional>
#include <vector>

// Device code, compiled for the host by way of host/common/launch_kernel.hpp.
#include "plan/key_lists.cu"
#include "plan/reordered_plan.hpp"
#include "support/catch.hpp"
#include "support/mask_encodings.hpp"
#include "support/random.hpp"

namespace {

using namespace flashdma_bwd;
using namespace flashdma_bwd::testing;

/// An encoded mask in memory of the alignment that is asked for, as the launch sees it.
class View {
 public:
  View(const BoolMask& mask, const EncodingSpec& spec, const EncodedMask& encoded, std::size_t shift) {
    // A guard on both sides shows to sanitizers what is read astray.
    memory_.resize(encoded.bytes.size() / 8 + 2);
    auto* data = reinterpret_cast<std::byte*>(memory_.data()) + shift;
    std::copy(encoded.bytes.begin(), encoded.bytes.end(), data);
    const flashdma_bwd_pair_tensor& t = encoded.tensor;
    view_.data = data;
    view_.encoding = static_cast<MaskEncoding>(spec.encoding);
    view_.block_queries = spec.block_q;
    view_.block_keys = spec.block_k;
    view_.batch = static_cast<int>(t.batch);
    view_.heads = static_cast<int>(t.heads);
    view_.columns = static_cast<int>(t.columns);
    view_.queries = static_cast<int>(mask.seqlen_q);
    view_.keys = static_cast<int>(mask.seqlen_k);
    view_.stride_batch = t.batch > 1 ? t.stride_batch : 0;
    view_.stride_head = t.heads > 1 ? t.stride_head : 0;
    view_.stride_row = t.rows > 1 ? t.stride_row : 0;
    view_.stride_column = t.columns > 1 ? t.stride_column : 0;
    if (view_.encoding != MaskEncoding::key_list) return;
    bits_.assign(key_list_bits_bytes(t.batch * t.heads, mask.seqlen_k) / 8, 0xDEADBEEFDEADBEEFu);
    REQUIRE(mark_keys(view_, bits_.data(), nullptr) == cudaSuccess);
    REQUIRE(view_.encoding == MaskEncoding::bits);
  }
  MaskView limited(const Limits& limits) const {
    MaskView view = view_;
    view.limits = limits;
    return view;
  }

 private:
  std::vector<std::uint64_t> memory_, bits_;
  MaskView view_;
};

struct Natural {
  std::vector<std::uint64_t> words;
  std::vector<std::uint8_t> classes;
  bool operator==(const Natural&) const = default;
};
Natural natural_plan(const MaskView& mask) {
  const NaturalPlanLayout layout = natural_plan_layout(mask.batch * mask.heads, mask.queries, mask.keys);
  Natural plan;
  plan.words.assign(layout.classes / 8, 0xDEADBEEFDEADBEEFu);
  plan.classes.assign(layout.classes / 8 / kMaskAtom, 0xFF);
  REQUIRE(pack_mask(mask, plan.words.data(), plan.classes.data(), nullptr) == cudaSuccess);
  return plan;
}

/// The first pass of a reordered plan: the others do not read the mask. What it does not write holds the poison.
std::vector<std::uint64_t> key_rows_memory(const MaskView& mask) {
  const std::int64_t heads = mask.batch * mask.heads;
  std::vector<std::uint64_t> memory(reordered_plan_layout(heads, mask.queries, mask.keys).bytes / 8,
                                    0xDEADBEEFDEADBEEFu);
  const ReorderedPlan plan =
      reordered_plan(reinterpret_cast<std::byte*>(memory.data()), heads, mask.queries, mask.keys);
  REQUIRE(prepare_keys(mask, {}, plan, nullptr) == cudaSuccess);
  REQUIRE(read_key_rows(mask, {}, {}, plan, nullptr) == cudaSuccess);
  return memory;
}

struct Compacted {
  std::vector<std::int32_t> counts, keys;
  bool operator==(const Compacted&) const = default;
};
Compacted compacted_plan(const MaskView& mask) {
  const auto heads = static_cast<std::size_t>(mask.batch * mask.heads);
  Compacted plan{std::vector<std::int32_t>(heads, -1),
                 std::vector<std::int32_t>(heads * static_cast<std::size_t>(mask.keys), -1)};
  REQUIRE(compact_mask(mask, plan.counts.data(), plan.keys.data(), nullptr) == cudaSuccess);
  return plan;
}

/// How a mask's pairs hang together, which decides what can express it.
enum class Kind { any, intervals, blocks_of_64, blocks_of_128 };

BoolMask random_bool_mask(Random& random, Kind kind, std::int64_t batch, std::int64_t heads, std::int64_t rows,
                          std::int64_t columns, std::int64_t seqlen_q, std::int64_t seqlen_k) {
  BoolMask mask{batch, heads, rows, columns, seqlen_q, seqlen_k, {}};
  const std::int64_t block = kind == Kind::blocks_of_128 ? 128 : 64;
  for (std::int64_t slice = 0; slice < batch * heads; ++slice) {
    const std::uint64_t seed = random.bits();
    std::vector<std::int64_t> begins, ends;
    for (std::int64_t column = 0; column < columns; ++column) {
      begins.push_back(random.below(3) == 0 ? 0 : random.below(rows + 1));
      ends.push_back(random.below(3) == 0 ? rows : random.below(rows + 1));
    }
    for (std::int64_t row = 0; row < rows; ++row)
      for (std::int64_t column = 0; column < columns; ++column) {
        const auto c = static_cast<std::size_t>(column);
        const bool in_block = mix(seed ^ mix(static_cast<std::uint64_t>(row / block << 20 | column / block))) % 3 == 0;
        mask.kept.push_back(kind == Kind::any         ? in_block || random.below(2) == 0
                            : kind == Kind::intervals ? row >= begins[c] && row < ends[c]
                                                      : in_block);
      }
  }
  return mask;
}

struct Shape {
  std::int64_t batch, heads, queries, keys;
  bool rows, columns;
};
constexpr Shape kShapes[] = {{1, 2, 130, 200, true, true},
                             {1, 1, 70, 129, true, false},
                             {2, 1, 100, 170, false, true},
                             {1, 1, 1, 1, true, true},
                             {1, 1, 65, 64, false, false}};
constexpr Kind kKinds[] = {Kind::any, Kind::intervals, Kind::blocks_of_64, Kind::blocks_of_128};

/// Calls visit(mask, view as bytes, view as encoded) for each mask in each encoding that expresses it, in memory that
/// is aligned and that is not.
template <class Visit>
void for_each_encoding(const Visit& visit) {
  Random random(17);
  int visited[std::size(kMaskEncodings)] = {};
  for (const Shape& shape : kShapes)
    for (const Kind kind : kKinds) {
      if (kind != Kind::any && shape.queries == 1) continue;
      const BoolMask mask = random_bool_mask(random, kind, shape.batch, shape.heads, shape.rows ? shape.queries : 1,
                                             shape.columns ? shape.keys : 1, shape.queries, shape.keys);
      const EncodingSpec bytes;
      const View as_bytes(mask, bytes, *encode_mask(mask, bytes, 0), 0);
      for (const flashdma_bwd_mask_encoding encoding : kMaskEncodings)
        for (const bool garbage : {false, true}) {
          // In order the encodings differ little from one mask to the next, and threads are slow to start.
          if (!garbage && &shape != &kShapes[0]) continue;
          const std::uint16_t block = kind == Kind::blocks_of_128 ? 128 : 64;
          const EncodingSpec spec{encoding, 64, block, garbage, garbage ? 7 : 0};
          const std::optional<EncodedMask> encoded = encode_mask(mask, spec, random.bits());
          if (!encoded) continue;
          INFO(encoding_name(encoding) << (garbage ? " with garbage" : "") << ", kind " << static_cast<int>(kind)
                                       << ", queries " << shape.queries << ", keys " << shape.keys << ", rows "
                                       << shape.rows << ", columns " << shape.columns);
          const View view(mask, spec, *encoded, garbage ? static_cast<std::size_t>(encoded->element_bytes) : 0);
          visit(mask, as_bytes, view);
          ++visited[static_cast<int>(encoding)];
        }
    }
  for (const int count : visited) CHECK(count >= 4);
}

TEST_CASE("natural plans are the same in every encoding") {
  for_each_encoding([](const BoolMask& mask, const View& as_bytes, const View& view) {
    Limits limits;
    limits.high = static_cast<int>(mask.seqlen_k - mask.seqlen_q) / 2;  // hides some atoms
    CHECK(natural_plan(view.limited(limits)) == natural_plan(as_bytes.limited(limits)));
  });
}

TEST_CASE("the first pass of reordered plans finds the same in every encoding") {
  for_each_encoding([](const BoolMask& mask, const View& as_bytes, const View& view) {
    Limits limits;
    limits.high = static_cast<int>(mask.seqlen_k - mask.seqlen_q) / 2;
    CHECK(key_rows_memory(view.limited(limits)) == key_rows_memory(as_bytes.limited(limits)));
  });
}

TEST_CASE("the first pass writes natural atoms of masks whose keys keep their own order") {
  for_each_encoding([](const BoolMask& mask, const View& as_bytes, const View& view) {
    const auto half = static_cast<int>(mask.seqlen_k - mask.seqlen_q) / 2;
    for (const Limits& limits : {Limits{-kUnlimited, half}, Limits{-40, 20}}) {  // the second hides whole tiles
      const MaskView limited = view.limited(limits);
      const std::int64_t heads = limited.batch * limited.heads;
      std::vector<std::uint64_t> memory(reordered_plan_layout(heads, limited.queries, limited.keys).bytes / 8,
                                        0xDEADBEEFDEADBEEFu);
      const ReorderedPlan plan =
          reordered_plan(reinterpret_cast<std::byte*>(memory.data()), heads, limited.queries, limited.keys);
      OwnOrderProof proof = own_order_proof(limited, {0, false, 0}, plan);
      proof.most_own_tiles = 0;  // of which there are enough, whatever the keys span
      REQUIRE(prepare_keys(limited, proof, plan, nullptr) == cudaSuccess);
      REQUIRE(read_key_rows(limited, {}, proof, plan, nullptr) == cudaSuccess);
      const Natural expected = natural_plan(as_bytes.limited(limits));
      CHECK(std::equal(expected.words.begin(), expected.words.end(), plan.words));
      const std::size_t atoms = expected.words.size() / kMaskAtom;
      for (std::size_t atom = 0; atom < atoms; ++atom) REQUIRE(expected.classes[atom] == plan.classes[atom]);
      CHECK(*plan.key_rows == 0xDEADBEEFDEADBEEFu);
      // What else the second pass reads is as without a proof.
      std::vector<std::uint64_t> plain_memory = key_rows_memory(limited);
      const ReorderedPlan plain =
          reordered_plan(reinterpret_cast<std::byte*>(plain_memory.data()), heads, limited.queries, limited.keys);
      const auto keys = static_cast<std::ptrdiff_t>(2 * heads * limited.keys);
      CHECK(std::equal(plan.intervals.from_end, plan.intervals.from_end + keys, plain.intervals.from_end));
      CHECK(std::equal(plan.active_atoms, plan.active_atoms + atoms / 2, plain.active_atoms));
    }
  });
}

TEST_CASE("the proof that keys keep their order is the same in every encoding") {
  int tiles_of_encodings[std::size(kMaskEncodings)] = {};
  for_each_encoding([&](const BoolMask& mask, const View& as_bytes, const View& view) {
    const auto half = static_cast<int>(mask.seqlen_k - mask.seqlen_q) / 2;
    for (const Limits& limits : {Limits(), Limits{-kUnlimited, half}}) {
      const auto least_tiles = [&](const MaskView& of) {
        const std::int64_t heads = of.batch * of.heads;
        std::vector<std::uint64_t> memory(reordered_plan_layout(heads, of.queries, of.keys).bytes / 8,
                                          0xDEADBEEFDEADBEEFu);
        const ReorderedPlan plan =
            reordered_plan(reinterpret_cast<std::byte*>(memory.data()), heads, of.queries, of.keys);
        const OwnOrderProof proof = own_order_proof(of, {0, false, 0}, plan);
        REQUIRE(prepare_keys(of, proof, plan, nullptr) == cudaSuccess);
        REQUIRE(proof.parts == 1);
        std::vector<std::int32_t> tiles;
        for (std::int64_t head = 0; head < heads; ++head) tiles.push_back(plan.least_tiles[head * kMostParts]);
        return tiles;
      };
      const MaskView encoded = view.limited(limits);
      const std::vector<std::int32_t> tiles = least_tiles(encoded);
      CHECK(tiles == least_tiles(as_bytes.limited(limits)));
      for (const std::int32_t of_mask : tiles) tiles_of_encodings[static_cast<int>(encoded.encoding)] += of_mask;
    }
  });
  // Key lists are bits by then.
  for (const MaskEncoding encoding :
       {MaskEncoding::bytes, MaskEncoding::bits, MaskEncoding::intervals, MaskEncoding::blocks})
    CHECK(tiles_of_encodings[static_cast<int>(encoding)] > 0);
}

TEST_CASE("compacted plans are the same in every encoding") {
  for_each_encoding([](const BoolMask& mask, const View& as_bytes, const View& view) {
    if (mask.rows == 1 && view.limited({}).encoding != MaskEncoding::intervals)
      CHECK(compacted_plan(view.limited({})) == compacted_plan(as_bytes.limited({})));
  });
}

}  // namespace
