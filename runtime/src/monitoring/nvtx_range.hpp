// A range of NVTX, which profilers show on the thread's timeline.
#pragma once

namespace flashdma_bwd {

class NvtxRange {
 public:
  NvtxRange() = default;
  ~NvtxRange() { end(); }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;
  void begin(const char* name);
  /// The range that was begun, if any. In the same thread.
  void end();

 private:
  bool open_ = false;
};

}  // namespace flashdma_bwd
