// A kernel that the ptxas gate refuses: 128 sums a thread, and 64 registers because a block has 1024 threads.
// from configs/tables/sm80.yaml:42
extern "C" __global__ void __launch_bounds__(1024) bwd_sm80_d32_spills(const float* in, float* out, int steps) {
  constexpr int kSums = 128;
  float sums[kSums] = {};
  for (int step = 0; step < steps; ++step)
#pragma unroll
    for (int i = 0; i < kSums; ++i) sums[i] += in[step * kSums + i] * sums[(i + 1) % kSums];
#pragma unroll
  for (int i = 0; i < kSums; ++i) out[i] = sums[i];
}
