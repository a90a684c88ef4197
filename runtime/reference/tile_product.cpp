// The tile product, compiled for plain x86-64 (or whatever the target is) and for processors with AVX2 and FMA.
#include "reference/tile_product.hpp"

namespace flashdma_bwd {
namespace {

typedef double Lanes __attribute__((vector_size(64), aligned(8), may_alias));

// Four rows by eight columns of C stay in registers while k runs.
inline __attribute__((always_inline)) void product_body(double* c, std::int64_t ldc, const double* a,
                                                        std::int64_t a_row, std::int64_t a_column, const double* b,
                                                        std::int64_t ldb, int rows, int depth, int columns) {
  for (int j = 0; j < columns; j += 8) {
    for (int i = 0; i < rows; i += 4) {
      double* c0 = c + i * ldc + j;
      const double* a0 = a + i * a_row;
      const double* b0 = b + j;
      Lanes sum0 = *reinterpret_cast<const Lanes*>(c0);
      Lanes sum1 = *reinterpret_cast<const Lanes*>(c0 + ldc);
      Lanes sum2 = *reinterpret_cast<const Lanes*>(c0 + 2 * ldc);
      Lanes sum3 = *reinterpret_cast<const Lanes*>(c0 + 3 * ldc);
      for (int k = 0; k < depth; ++k) {
        const Lanes row = *reinterpret_cast<const Lanes*>(b0);
        sum0 += row * a0[0];
        sum1 += row * a0[a_row];
        sum2 += row * a0[2 * a_row];
        sum3 += row * a0[3 * a_row];
        a0 += a_column;
        b0 += ldb;
      }
      *reinterpret_cast<Lanes*>(c0) = sum0;
      *reinterpret_cast<Lanes*>(c0 + ldc) = sum1;
      *reinterpret_cast<Lanes*>(c0 + 2 * ldc) = sum2;
      *reinterpret_cast<Lanes*>(c0 + 3 * ldc) = sum3;
    }
  }
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) void product_avx2(double* c, std::int64_t ldc, const double* a, std::int64_t a_row,
                                                      std::int64_t a_column, const double* b, std::int64_t ldb,
                                                      int rows, int depth, int columns) {
  product_body(c, ldc, a, a_row, a_column, b, ldb, rows, depth, columns);
}
#endif

}  // namespace

void tile_product(double* c, std::int64_t ldc, const double* a, std::int64_t a_row, std::int64_t a_column,
                  const double* b, std::int64_t ldb, int rows, int depth, int columns) {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2) {
    product_avx2(c, ldc, a, a_row, a_column, b, ldb, rows, depth, columns);
    return;
  }
#endif
  product_body(c, ldc, a, a_row, a_column, b, ldb, rows, depth, columns);
}

}  // namespace flashdma_bwd
