// A kernel that the ptxas gate refuses: it changes accumulators while a wgmma is computing them, so that ptxas has to
// wait in between.
__device__ __forceinline__ void multiply(float (&d)[4], unsigned long long a, unsigned long long b) {
  asm volatile(
      "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;\n"
      "wgmma.commit_group.sync.aligned;\n"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b));
}

extern "C" __global__ void __launch_bounds__(128)
    bwd_sm90_d32_serialised_wgmma(float* out, unsigned long long a, unsigned long long b) {
  float d[4] = {};
  asm volatile("wgmma.fence.sync.aligned;\n" ::: "memory");
  multiply(d, a, b);
  for (float& sum : d) sum *= 1.5f;
  multiply(d, a, b);
  asm volatile("wgmma.wait_group.sync.aligned 0;\n" ::: "memory");
  for (int i = 0; i < 4; ++i) out[i * 128 + threadIdx.x] = d[i];
}
