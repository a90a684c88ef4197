// Stands for the shared device code in a library built with FLASHDMA_BWD_KERNELS=OFF: selection, explain and the CPU
// backend are whole there, and whatever would launch says that this build has no kernel for the device.
#include "common/side_kernels.hpp"
#include "plan/mask_plan.hpp"

namespace flashdma_bwd {

cudaError_t load_side_kernels() {
  return cudaErrorNoKernelImageForDevice;
}
cudaError_t load_plan_kernels() {
  return cudaErrorNoKernelImageForDevice;
}
cudaError_t preprocess(const BackwardParameters&, int, PreprocessPart, bool, cudaStream_t) {
  return cudaErrorNoKernelImageForDevice;
}
cudaError_t convert_gradients(const BackwardParameters&, int, bool, cudaStream_t) {
  return cudaErrorNoKernelImageForDevice;
}
cudaError_t reduce_d_key_value(const BackwardParameters&, bool, cudaStream_t) {
  return cudaErrorNoKernelImageForDevice;
}
cudaError_t clear_d_key_value(const BackwardParameters&, cudaStream_t) {
  return cudaErrorNoKernelImageForDevice;
}
cudaError_t clear_packed_tails(const BackwardParameters&, std::int64_t, std::int64_t, cudaStream_t) {
  return cudaErrorNoKernelImageForDevice;
}
cudaError_t reduce_bias_gradient(const float*, const PairShape&, const BiasGradientOutput&, const BackwardParameters&,
                                 bool, cudaStream_t) {
  return cudaErrorNoKernelImageForDevice;
}
cudaError_t clear_bias_gradient(const BiasGradientOutput&, const StoredTiles&, cudaStream_t) {
  return cudaErrorNoKernelImageForDevice;
}
cudaError_t mark_keys(MaskView&, std::uint64_t*, cudaStream_t) {
  return cudaErrorNoKernelImageForDevice;
}
cudaError_t pack_mask(const MaskView&, std::uint64_t*, std::uint8_t*, cudaStream_t) {
  return cudaErrorNoKernelImageForDevice;
}
cudaError_t compact_mask(const MaskView&, std::int32_t*, std::int32_t*, cudaStream_t) {
  return cudaErrorNoKernelImageForDevice;
}
cudaError_t reorder_mask(const MaskView&, const PlanDevice&, bool, std::byte*, cudaStream_t, const BesideOrder&) {
  return cudaErrorNoKernelImageForDevice;
}
cudaError_t clip_keys(const BackwardParameters&, const std::int32_t*, std::int32_t*, cudaStream_t) {
  return cudaErrorNoKernelImageForDevice;
}
cudaError_t build_tile_lists(const BackwardParameters&, int, int, cudaStream_t) {
  return cudaErrorNoKernelImageForDevice;
}

}  // namespace flashdma_bwd
