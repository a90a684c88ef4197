// wgmma.mma_async, a warp's 16 rows at a time. A product is executed at any time between the commit of its group and
// the wait for it, so that operands that are given back too early have other values; until then its accumulators are
// NaN.
#include <algorithm>
#include <limits>

#include "scheduler.hpp"
#include "tensor_map.hpp"

namespace flashdma_bwd::emulated {
namespace {

constexpr int kRows = 16;
constexpr int kSteps = 16;
constexpr int kMostColumns = 256;

float to_float(std::uint32_t bits, bool bf16) {
  return bf16 ? bf16_to_float(bits) : half_to_float(static_cast<std::uint16_t>(bits));
}

/// A matrix descriptor, by the PTX ISA's "Matrix descriptor format".
struct Operand {
  std::uint32_t start, leading, stride, swizzle_bytes;

  explicit Operand(std::uint64_t descriptor)
      : start(static_cast<std::uint32_t>(descriptor & 0x3fff) << 4),
        leading(static_cast<std::uint32_t>(descriptor >> 16 & 0x3fff) << 4),
        stride(static_cast<std::uint32_t>(descriptor >> 32 & 0x3fff) << 4) {
    constexpr std::uint32_t kSwizzles[] = {0, 128, 64, 32};
    swizzle_bytes = kSwizzles[descriptor >> 62];
    if ((descriptor >> 49 & 7) != 0) fail("a descriptor with a base offset");
  }
  /// Eight elements that lie together: of a row of M or N, from step `step` on; or, transposed, of a step, from `row`
  /// on.
  std::array<std::uint16_t, 8> eight(Cta& cta, int row, int step, bool transposed) const {
    const auto r = static_cast<std::uint32_t>(row);
    const auto k = static_cast<std::uint32_t>(step);
    std::array<std::uint16_t, 8> elements;
    if (swizzle_bytes == 0) {
      if (transposed) fail("a transposed operand without a swizzle");
      read_shared(cta, (start + r / 8 * stride + r % 8 * 16 + k / 8 * leading) & 0x3ffff, 16, elements.data());
      return elements;
    }
    const std::uint32_t row_of_atom = transposed ? k : r;
    const std::uint32_t within = transposed ? r * 2 % swizzle_bytes : k * 2;
    const std::uint32_t beyond = transposed ? r * 2 / swizzle_bytes * leading : 0;
    const std::uint32_t address = start + beyond + row_of_atom / 8 * stride + row_of_atom % 8 * swizzle_bytes + within;
    const std::uint32_t at = swizzled(address & 0x3ffff, swizzle_bytes);
    read_shared(cta, at, 16, elements.data());
    return elements;
  }
};

struct Tiles {
  alignas(64) float a[kRows][kSteps];
  alignas(64) float b[kSteps][kMostColumns];
  alignas(64) float d[kRows][kMostColumns];
};

__attribute__((target_clones("avx512f", "avx2,fma", "default"))) void multiply(Tiles& t, int columns) {
  constexpr int kBlock = 16;
  constexpr int kRowsAtOnce = 4;
  for (int first = 0; first < columns; first += kBlock)
    for (int row = 0; row < kRows; row += kRowsAtOnce) {
      float sums[kRowsAtOnce][kBlock];
      for (int r = 0; r < kRowsAtOnce; ++r)
        for (int c = 0; c < kBlock; ++c) sums[r][c] = t.d[row + r][first + c];
      for (int k = 0; k < kSteps; ++k)
        for (int r = 0; r < kRowsAtOnce; ++r)
          for (int c = 0; c < kBlock; ++c) sums[r][c] += t.a[row + r][k] * t.b[k][first + c];
      for (int r = 0; r < kRowsAtOnce; ++r)
        for (int c = 0; c < kBlock; ++c) t.d[row + r][first + c] = sums[r][c];
    }
}

/// Calls visit(lane, element, tile row, tile column) for every accumulator of a warp.
template <class Visit>
void visit_accumulators(int columns, Visit&& visit) {
  for (int lane = 0; lane < static_cast<int>(kWarpLanes); ++lane)
    for (int i = 0; i < columns / 2; ++i) visit(lane, i, lane / 4 + i / 2 % 2 * 8, i / 4 * 8 + lane % 4 * 2 + i % 2);
}

void read_a(Tiles& t, const PendingProduct& product, const Warp& warp) {
  const Product& p = product.what;
  if (p.a == 0) {
    for (std::size_t lane = 0; lane < kWarpLanes; ++lane)
      for (std::size_t i = 0; i < 8; ++i)
        t.a[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2] =
            to_float(product.a[lane][i / 2] >> (i % 2 * 16) & 0xffffu, p.bf16);
    return;
  }
  const Operand operand(p.a);
  const int first = warp.number % 4 * kRows;
  for (int outer = 0; outer < 16; ++outer)
    for (int inner = 0; inner < 16; inner += 8) {
      const auto elements = p.trans_a ? operand.eight(*warp.cta, first + inner, outer, true)
                                      : operand.eight(*warp.cta, first + outer, inner, false);
      for (int i = 0; i < 8; ++i)
        (p.trans_a ? t.a[inner + i][outer] : t.a[outer][inner + i]) =
            to_float(elements[static_cast<std::size_t>(i)], p.bf16);
    }
}

void read_b(Tiles& t, const Product& p, Cta& cta) {
  const Operand operand(p.b);
  if (p.trans_b)
    for (int k = 0; k < kSteps; ++k)
      for (int column = 0; column < p.n; column += 8) {
        const auto elements = operand.eight(cta, column, k, true);
        for (std::size_t i = 0; i < 8; ++i)
          t.b[k][static_cast<std::size_t>(column) + i] = to_float(elements[i], p.bf16);
      }
  else
    for (int column = 0; column < p.n; ++column)
      for (int k = 0; k < kSteps; k += 8) {
        const auto elements = operand.eight(cta, column, k, false);
        for (std::size_t i = 0; i < 8; ++i)
          t.b[static_cast<std::size_t>(k) + i][column] = to_float(elements[i], p.bf16);
      }
}

void execute(Warp& warp, const std::vector<PendingProduct>& group) {
  static thread_local Tiles t;
  for (std::size_t i = 0; i < group.size(); ++i) {
    const PendingProduct& product = group[i];
    const int n = product.what.n;
    const auto d = [&](int lane, int element) -> float& { return product.d[static_cast<std::size_t>(lane)][element]; };
    // Of products that follow one another the accumulators stay where they are.
    if (!product.what.accumulate)
      for (auto& row : t.d) std::fill(row, row + n, 0.0f);
    else if (!product.accumulators.empty())
      visit_accumulators(n, [&](int lane, int e, int row, int column) {
        t.d[row][column] = product.accumulators[static_cast<std::size_t>(lane * (n / 2) + e)];
      });
    else if (i == 0 || group[i - 1].d[0] != product.d[0])
      visit_accumulators(n, [&](int lane, int e, int row, int column) { t.d[row][column] = d(lane, e); });
    read_a(t, product, warp);
    read_b(t, product.what, *warp.cta);
    multiply(t, n);
    if (i + 1 == group.size() || group[i + 1].d[0] != product.d[0])
      visit_accumulators(n, [&](int lane, int e, int row, int column) { d(lane, e) = t.d[row][column]; });
  }
  progress();
}

/// Whether a product that has not been executed writes these accumulators.
bool is_pending(const Warp& warp, const float* d) {
  const auto writes = [&](const PendingProduct& product) { return product.d[0] == d; };
  if (std::any_of(warp.uncommitted.begin(), warp.uncommitted.end(), writes)) return true;
  return std::any_of(warp.products.begin(), warp.products.end(), [&](const std::vector<PendingProduct>& group) {
    return std::any_of(group.begin(), group.end(), writes);
  });
}

/// A warpgroup is four warps, of which the first's number is a multiple of four.
bool is_in_no_warpgroup(const Warp& warp) {
  return static_cast<std::size_t>(warp.number) / 4 * 4 + 4 > warp.cta->warps.size();
}

/// The last lane of a warp issues the product of all.
void issue(Slot* slots) {
  Warp& warp = *running().warp;
  if (warp.lanes != ~0u || is_in_no_warpgroup(warp)) fail("wgmma without a warpgroup");
  if (!warp.fenced) fail("wgmma without wgmma.fence after the last wait");
  PendingProduct product{};
  product.what = take<Product>(slots[0]);
  const auto n = static_cast<std::size_t>(product.what.n);
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    const auto own = take<Product>(slots[lane]);
    if (own.a != product.what.a || own.b != product.what.b) fail("lanes with different descriptors");
    product.d[lane] = own.d;
    std::copy(std::begin(own.a_registers), std::end(own.a_registers), product.a[lane].begin());
  }
  if (!is_pending(warp, product.d[0])) {
    product.accumulators.reserve(product.what.accumulate ? kWarpLanes * n / 2 : 0);
    for (float* d : product.d) {
      if (product.what.accumulate) product.accumulators.insert(product.accumulators.end(), d, d + n / 2);
      std::fill(d, d + n / 2, std::numeric_limits<float>::quiet_NaN());
    }
  }
  warp.uncommitted.push_back(std::move(product));
}

}  // namespace

void execute_products(Warp& warp, std::size_t pending) {
  for (; warp.products.size() > pending; warp.products.pop_front()) execute(warp, warp.products.front());
}

void wgmma(const Product& product) {
  put(next_slots()[place->lane], product);
  meet("wgmma.mma_async", issue);
}
void wgmma_fence() {
  running().warp->fenced = true;
}
void wgmma_commit_group() {
  meet("wgmma.commit_group", [](Slot*) {
    Warp& warp = *running().warp;
    warp.products.push_back(std::move(warp.uncommitted));
    warp.uncommitted.clear();
    if (random_numbers().chance(policy().products)) execute_products(warp, 0);
  });
}
void wgmma_wait_group(int pending) {
  put(next_slots()[place->lane], pending);
  meet("wgmma.wait_group", [](Slot* slots) {
    Warp& warp = *running().warp;
    execute_products(warp, static_cast<std::size_t>(take<int>(slots[0])));
    warp.fenced = false;
  });
}

}  // namespace flashdma_bwd::emulated
