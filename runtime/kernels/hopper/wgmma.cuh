// wgmma.mma_async: D (64 x N, float32 registers) = A B, or D += A B, for 16 steps of the reduction, by N.
//
// A lies in shared memory (ss) or in registers (rs), B in shared memory; descriptors are those of
// panel_tile.hpp. kTransA and kTransB say that an operand lies with its M or N along the rows of shared memory
// instead of the reduction. Element i of a lane's accumulators is row 16 warp + lane / 4 + 8 (i / 2 % 2) and column 8
// (i / 4) + 2 (lane % 4) + i % 2 (PTX ISA, "Matrix fragments for wgmma.mma_async.m64nNk16").
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace flashdma_bwd::ptx {

template <int N, bool kBf16>
struct Wgmma;

// An asm statement names each register; these lists are its text and its operands.
#define FLASHDMA_REGISTERS_8 "%0, %1, %2, %3, %4, %5, %6, %7"
#define FLASHDMA_REGISTERS_16 FLASHDMA_REGISTERS_8 ", %8, %9, %10, %11, %12, %13, %14, %15"
#define FLASHDMA_REGISTERS_24 FLASHDMA_REGISTERS_16 ", %16, %17, %18, %19, %20, %21, %22, %23"
#define FLASHDMA_REGISTERS_32 FLASHDMA_REGISTERS_24 ", %24, %25, %26, %27, %28, %29, %30, %31"
#define FLASHDMA_REGISTERS_48 \
  FLASHDMA_REGISTERS_32 ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47"
#define FLASHDMA_REGISTERS_64 \
  FLASHDMA_REGISTERS_48 ", %48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define FLASHDMA_REGISTERS_96                                                          \
  FLASHDMA_REGISTERS_64                                                                \
  ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79, " \
  "%80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95"
#define FLASHDMA_REGISTERS_128                                                               \
  FLASHDMA_REGISTERS_96                                                                      \
  ", %96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, " \
  "%111, %112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, "     \
  "%125, %126, %127"
#define FLASHDMA_EIGHT(c, d, i) \
  c(d[i]), c(d[i + 1]), c(d[i + 2]), c(d[i + 3]), c(d[i + 4]), c(d[i + 5]), c(d[i + 6]), c(d[i + 7])
#define FLASHDMA_OPERANDS_8(c, d) FLASHDMA_EIGHT(c, d, 0)
#define FLASHDMA_OPERANDS_16(c, d) FLASHDMA_OPERANDS_8(c, d), FLASHDMA_EIGHT(c, d, 8)
#define FLASHDMA_OPERANDS_24(c, d) FLASHDMA_OPERANDS_16(c, d), FLASHDMA_EIGHT(c, d, 16)
#define FLASHDMA_OPERANDS_32(c, d) FLASHDMA_OPERANDS_24(c, d), FLASHDMA_EIGHT(c, d, 24)
#define FLASHDMA_OPERANDS_48(c, d) FLASHDMA_OPERANDS_32(c, d), FLASHDMA_EIGHT(c, d, 32), FLASHDMA_EIGHT(c, d, 40)
#define FLASHDMA_OPERANDS_64(c, d) FLASHDMA_OPERANDS_48(c, d), FLASHDMA_EIGHT(c, d, 48), FLASHDMA_EIGHT(c, d, 56)
#define FLASHDMA_OPERANDS_96(c, d)                                                                          \
  FLASHDMA_OPERANDS_64(c, d), FLASHDMA_EIGHT(c, d, 64), FLASHDMA_EIGHT(c, d, 72), FLASHDMA_EIGHT(c, d, 80), \
      FLASHDMA_EIGHT(c, d, 88)
#define FLASHDMA_OPERANDS_128(c, d)                                                                           \
  FLASHDMA_OPERANDS_96(c, d), FLASHDMA_EIGHT(c, d, 96), FLASHDMA_EIGHT(c, d, 104), FLASHDMA_EIGHT(c, d, 112), \
      FLASHDMA_EIGHT(c, d, 120)

// What follows the accumulators: p0 ... are the numbers of the operands behind them.
#define FLASHDMA_WGMMA_SS(N, TYPE, COUNT, CONSTRAINT, ACCUMULATE, p0, p1, p2, p3)                              \
  asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, " ACCUMULATE                                \
               ", 0;\n"                                                                                        \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" FLASHDMA_REGISTERS_##COUNT \
               "}, " p0 ", " p1 ", accumulate, 1, 1, " p2 ", " p3 ";\n}\n"                                     \
               : FLASHDMA_OPERANDS_##COUNT(CONSTRAINT, d)                                                      \
               : "l"(a), "l"(b), "n"(int{kTransA}), "n"(int{kTransB}))
#define FLASHDMA_WGMMA_RS(N, TYPE, COUNT, CONSTRAINT, ACCUMULATE, p0, p1, p2, p3, p4, p5)                      \
  asm volatile("{\n.reg .pred accumulate;\nsetp.ne.b32 accumulate, " ACCUMULATE                                \
               ", 0;\n"                                                                                        \
               "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE " {" FLASHDMA_REGISTERS_##COUNT \
               "}, {" p0 ", " p1 ", " p2 ", " p3 "}, " p4 ", accumulate, 1, 1, " p5 ";\n}\n"                   \
               : FLASHDMA_OPERANDS_##COUNT(CONSTRAINT, d)                                                      \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(int{kTransB}))

#define FLASHDMA_DEFINE_WGMMA(N, COUNT, BF16, TYPE, p0, p1, p2, p3, p4, p5)                                      \
  template <>                                                                                                    \
  struct Wgmma<N, BF16> {                                                                                        \
    /* kAccumulate false: D = A B, and D's registers are not read. */                                            \
    template <bool kTransA, bool kTransB, bool kAccumulate>                                                      \
    static __device__ __forceinline__ void ss(float (&d)[COUNT], std::uint64_t a, std::uint64_t b) {             \
      if constexpr (kAccumulate)                                                                                 \
        FLASHDMA_WGMMA_SS(N, TYPE, COUNT, "+f", "1", p0, p1, p2, p3);                                            \
      else                                                                                                       \
        FLASHDMA_WGMMA_SS(N, TYPE, COUNT, "=f", "0", p0, p1, p2, p3);                                            \
    }                                                                                                            \
    template <bool kTransB, bool kAccumulate>                                                                    \
    static __device__ __forceinline__ void rs(float (&d)[COUNT], const std::uint32_t (&a)[4], std::uint64_t b) { \
      if constexpr (kAccumulate)                                                                                 \
        FLASHDMA_WGMMA_RS(N, TYPE, COUNT, "+f", "1", p0, p1, p2, p3, p4, p5);                                    \
      else                                                                                                       \
        FLASHDMA_WGMMA_RS(N, TYPE, COUNT, "=f", "0", p0, p1, p2, p3, p4, p5);                                    \
    }                                                                                                            \
  };
#define FLASHDMA_DEFINE_WGMMA_TYPES(N, COUNT, p0, p1, p2, p3, p4, p5)   \
  FLASHDMA_DEFINE_WGMMA(N, COUNT, true, "bf16", p0, p1, p2, p3, p4, p5) \
  FLASHDMA_DEFINE_WGMMA(N, COUNT, false, "f16", p0, p1, p2, p3, p4, p5)

FLASHDMA_DEFINE_WGMMA_TYPES(16, 8, "%8", "%9", "%10", "%11", "%12", "%13")
FLASHDMA_DEFINE_WGMMA_TYPES(32, 16, "%16", "%17", "%18", "%19", "%20", "%21")
FLASHDMA_DEFINE_WGMMA_TYPES(48, 24, "%24", "%25", "%26", "%27", "%28", "%29")
FLASHDMA_DEFINE_WGMMA_TYPES(64, 32, "%32", "%33", "%34", "%35", "%36", "%37")
FLASHDMA_DEFINE_WGMMA_TYPES(96, 48, "%48", "%49", "%50", "%51", "%52", "%53")
FLASHDMA_DEFINE_WGMMA_TYPES(128, 64, "%64", "%65", "%66", "%67", "%68", "%69")
FLASHDMA_DEFINE_WGMMA_TYPES(192, 96, "%96", "%97", "%98", "%99", "%100", "%101")
FLASHDMA_DEFINE_WGMMA_TYPES(256, 128, "%128", "%129", "%130", "%131", "%132", "%133")

#undef FLASHDMA_DEFINE_WGMMA_TYPES
#undef FLASHDMA_DEFINE_WGMMA
#undef FLASHDMA_WGMMA_RS
#undef FLASHDMA_WGMMA_SS
#undef FLASHDMA_OPERANDS_128
#undef FLASHDMA_OPERANDS_96
#undef FLASHDMA_OPERANDS_64
#undef FLASHDMA_OPERANDS_48
#undef FLASHDMA_OPERANDS_32
#undef FLASHDMA_OPERANDS_24
#undef FLASHDMA_OPERANDS_16
#undef FLASHDMA_OPERANDS_8
#undef FLASHDMA_EIGHT
#undef FLASHDMA_REGISTERS_128
#undef FLASHDMA_REGISTERS_96
#undef FLASHDMA_REGISTERS_64
#undef FLASHDMA_REGISTERS_48
#undef FLASHDMA_REGISTERS_32
#undef FLASHDMA_REGISTERS_24
#undef FLASHDMA_REGISTERS_16
#undef FLASHDMA_REGISTERS_8

}  // namespace flashdma_bwd::ptx
