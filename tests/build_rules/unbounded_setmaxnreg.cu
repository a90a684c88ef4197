// A kernel that the ptxas gate refuses: without bounds on its threads ptxas knows no count of registers to start from,
// and ignores the change.
extern "C" __global__ void bwd_sm90_d32_unbounded_setmaxnreg(float* out) {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 240;\n");
  out[threadIdx.x] = 1.0f;
}
