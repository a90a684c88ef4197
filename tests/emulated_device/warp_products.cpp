// ldmatrix, stmatrix and mma.sync, and conversions to and from the 16-bit types.
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>

#include "scheduler.hpp"

namespace flashdma_bwd::emulated {
namespace {

struct Matrices {
  std::uint32_t address;
  std::uint32_t r[4];
};

/// Two elements of an 8 x 8 matrix, rows at the addresses of eight lanes.
template <bool kTransposed>
void load_matrices(Slot* slots) {
  std::array<Matrices, kWarpLanes> lanes{};
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane)
    for (std::size_t matrix = 0; matrix < 4; ++matrix)
      for (std::size_t i = 0; i < 2; ++i) {
        const std::size_t row = kTransposed ? lane % 4 * 2 + i : lane / 4;
        const std::size_t column = kTransposed ? lane / 4 : lane % 4 * 2 + i;
        const auto address = take<Matrices>(slots[matrix * 8 + row]).address;
        std::uint16_t element;
        std::memcpy(&element, shared_pointer(address, 16) + column * 2, 2);
        lanes[lane].r[matrix] |= static_cast<std::uint32_t>(element) << (i * 16);
      }
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) put(slots[lane], lanes[lane]);
}

struct MmaOperands {
  std::uint32_t a[4], b[2];
  float c[4];
};

template <bool kBf16>
void multiply(Slot* slots) {
  float a[16][16];
  float b[16][8];
  std::array<MmaOperands, kWarpLanes> lanes;
  const auto value = [](std::uint32_t word, std::size_t which) {
    const std::uint32_t bits = word >> (which * 16) & 0xffffu;
    return kBf16 ? bf16_to_float(bits) : half_to_float(static_cast<std::uint16_t>(bits));
  };
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    lanes[lane] = take<MmaOperands>(slots[lane]);
    for (std::size_t i = 0; i < 8; ++i)
      a[lane / 4 + i / 2 % 2 * 8][i / 4 * 8 + lane % 4 * 2 + i % 2] = value(lanes[lane].a[i / 2], i % 2);
    for (std::size_t i = 0; i < 4; ++i)
      b[i / 2 * 8 + lane % 4 * 2 + i % 2][lane / 4] = value(lanes[lane].b[i / 2], i % 2);
  }
  for (std::size_t lane = 0; lane < kWarpLanes; ++lane) {
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t k = 0; k < 16; ++k) lanes[lane].c[i] += a[lane / 4 + i / 2 * 8][k] * b[k][lane % 4 * 2 + i % 2];
    put(slots[lane], lanes[lane]);
  }
}

template <class Pair>
std::uint32_t bits_of(Pair low, Pair high) {
  std::uint16_t halves[2];
  std::memcpy(&halves[0], &low, 2);
  std::memcpy(&halves[1], &high, 2);
  return static_cast<std::uint32_t>(halves[1]) << 16 | halves[0];
}

template <class ToFloat>
std::uint32_t smaller_halves(std::uint32_t a, std::uint32_t b, ToFloat&& to_float) {
  std::uint32_t result = 0;
  for (unsigned shift : {0u, 16u}) {
    const std::uint32_t x = a >> shift & 0xffffu;
    const std::uint32_t y = b >> shift & 0xffffu;
    const float fx = to_float(x);
    const float fy = to_float(y);
    result |= (std::isnan(fx) || (!std::isnan(fy) && fy < fx) ? y : x) << shift;
  }
  return result;
}

/// a * b + c of the halves at `shift`, rounded to float32 only.
template <class ToFloat>
float fma_of_halves(std::uint32_t a, std::uint32_t b, std::uint32_t c, unsigned shift, ToFloat&& to_float) {
  return std::fma(to_float(a >> shift & 0xffffu), to_float(b >> shift & 0xffffu), to_float(c >> shift & 0xffffu));
}

}  // namespace

void ldmatrix_x4(std::uint32_t* r, std::uint32_t address, bool transposed) {
  put(next_slots()[place->lane], Matrices{address, {}});
  const Slot* slots = meet("ldmatrix", transposed ? load_matrices<true> : load_matrices<false>);
  const auto own = take<Matrices>(slots[place->lane]);
  std::copy(std::begin(own.r), std::end(own.r), r);
}

void stmatrix_x4(std::uint32_t address, const std::uint32_t* r, bool transposed) {
  const Slot* slots = exchange("stmatrix", Matrices{address, {r[0], r[1], r[2], r[3]}});
  const auto lane = static_cast<std::size_t>(place->lane);
  for (std::size_t matrix = 0; matrix < 4; ++matrix)
    for (std::size_t i = 0; i < 2; ++i) {
      const std::size_t row = transposed ? lane % 4 * 2 + i : lane / 4;
      const std::size_t column = transposed ? lane / 4 : lane % 4 * 2 + i;
      const auto to = take<Matrices>(slots[matrix * 8 + row]).address;
      const auto element = static_cast<std::uint16_t>(r[matrix] >> (i * 16));
      std::memcpy(shared_pointer(to, 16) + column * 2, &element, 2);
      wrote_shared(to, 16);
    }
}

void mma_m16n8k16(float* d, const std::uint32_t* a, std::uint32_t b0, std::uint32_t b1, const float* c, bool bf16) {
  put(next_slots()[place->lane], MmaOperands{{a[0], a[1], a[2], a[3]}, {b0, b1}, {c[0], c[1], c[2], c[3]}});
  const Slot* slots = meet("mma", bf16 ? multiply<true> : multiply<false>);
  const auto own = take<MmaOperands>(slots[place->lane]);
  std::copy(std::begin(own.c), std::end(own.c), d);
}

std::uint32_t pack_bf16(float low, float high) {
  return bits_of(__float2bfloat16_rn(low), __float2bfloat16_rn(high));
}
std::uint32_t pack_fp16(float low, float high) {
  return bits_of(__float2half_rn(low), __float2half_rn(high));
}

float half_to_float(std::uint16_t bits) {
  static const std::vector<float> values = [] {
    std::vector<float> all(std::size_t{1} << 16);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const auto half_bits = static_cast<std::uint16_t>(i);
      all[i] = __half2float(__half_raw{half_bits});
    }
    return all;
  }();
  return values[bits];
}

std::uint32_t fma_bf16(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  return pack_bf16(fma_of_halves(a, b, c, 0, bf16_to_float), fma_of_halves(a, b, c, 16, bf16_to_float));
}
std::uint32_t fma_fp16(std::uint32_t a, std::uint32_t b, std::uint32_t c) {
  const auto to_float = [](std::uint32_t bits) { return half_to_float(static_cast<std::uint16_t>(bits)); };
  return pack_fp16(fma_of_halves(a, b, c, 0, to_float), fma_of_halves(a, b, c, 16, to_float));
}

std::uint32_t min_bf16(std::uint32_t a, std::uint32_t b) {
  return smaller_halves(a, b, bf16_to_float);
}
std::uint32_t min_fp16(std::uint32_t a, std::uint32_t b) {
  return smaller_halves(a, b, [](std::uint32_t bits) { return half_to_float(static_cast<std::uint16_t>(bits)); });
}

}  // namespace flashdma_bwd::emulated
