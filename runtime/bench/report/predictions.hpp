// What a captured problem would run on a GPU, and the floor of its time. Nothing here was timed.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "floor.hpp"
#include "report/input_files.hpp"
#include "selection/parsed.hpp"
#include "selection/select_kernel.hpp"

namespace flashdma_bwd::bench {

/// A GPU that need not be here.
struct NamedDevice {
  std::string name;
  DeviceTraits traits;
};

/// A GPU's name, such as H200, or `sm<compute capability>:<multiprocessors>[:<bytes of shared memory of a block>]`,
/// such as sm90:132. Without the last it is that of the newest known GPU that is not newer.
Parsed<NamedDevice> parse_device(std::string_view text);

struct Prediction {
  flashdma_bwd::Problem problem;
  SelectionResult selection;
  std::string kernel;  ///< canonical name, or empty
  std::string row;     ///< file:line, or empty
  std::string reason;  ///< why there is no kernel, or empty
  Work work;
  Floor floor;
};

/// Predictions that share a row.
struct PredictedRow {
  std::string name;
  const Row* row = nullptr;
  std::vector<std::string> kernels;
  int count = 0;
  double floor_ms = 0;
};

struct CaptureAnalysis {
  std::string path;
  NamedDevice device;
  Ceilings ceilings;
  std::vector<Prediction> predictions;
  std::vector<PredictedRow> rows;  ///< the one with the longest floors first, or of the most problems
};

CaptureAnalysis predict(const Capture& capture, const NamedDevice& device, std::span<const Row> rows,
                        const Ceilings& ceilings);

}  // namespace flashdma_bwd::bench
