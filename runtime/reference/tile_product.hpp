// The one matrix product of the CPU backend: small tiles in double precision.
#pragma once

#include <cstdint>

namespace flashdma_bwd {

/// C[i][j] += sum over k of A(i, k) * B[k][j], where A(i, k) = a[i * a_row + k * a_column], B has rows of `ldb` and C
/// of `ldc` doubles. `rows` is a multiple of 4, `columns` of 8. The order of summation is fixed: k ascending.
void tile_product(double* c, std::int64_t ldc, const double* a, std::int64_t a_row, std::int64_t a_column,
                  const double* b, std::int64_t ldb, int rows, int depth, int columns);

}  // namespace flashdma_bwd
