// Selection and floors of captured problems. See predictions.hpp.
#include "report/predictions.hpp"

#include <algorithm>
#include <cctype>

#include "selection/configuration_name.hpp"
#include "selection/explain.hpp"
#include "selection/gpu_presets.hpp"
#include "selection/number_text.hpp"

namespace flashdma_bwd::bench {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  for (char& c : result) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return result;
}

int usual_shared_memory(int compute_capability) {
  int newest = 0, bytes = 0;
  for (const GpuPreset& preset : kGpuPresets)
    if (preset.traits.compute_capability <= compute_capability && preset.traits.compute_capability >= newest) {
      newest = preset.traits.compute_capability;
      bytes = preset.traits.shared_memory_per_block;
    }
  return bytes;
}

std::string preset_names() {
  std::string names;
  for (const GpuPreset& preset : kGpuPresets) names += (names.empty() ? "" : ", ") + std::string(preset.name);
  return names;
}

PredictedRow& row_of(CaptureAnalysis& analysis, const Prediction& prediction) {
  for (PredictedRow& row : analysis.rows)
    if (row.row == prediction.selection.row) return row;
  PredictedRow& row = analysis.rows.emplace_back();
  row.name = prediction.row;
  row.row = prediction.selection.row;
  return row;
}

void add_to_row(CaptureAnalysis& analysis, const Prediction& prediction) {
  if (prediction.selection.row == nullptr) return;
  PredictedRow& row = row_of(analysis, prediction);
  ++row.count;
  row.floor_ms += prediction.floor.ms;
  if (std::find(row.kernels.begin(), row.kernels.end(), prediction.kernel) == row.kernels.end())
    row.kernels.push_back(prediction.kernel);
}

}  // namespace

Parsed<NamedDevice> parse_device(std::string_view text) {
  for (const GpuPreset& preset : kGpuPresets)
    if (lower(preset.name) == lower(text)) return NamedDevice{std::string(preset.name), preset.traits};
  std::string_view rest = text;
  NamedDevice device{std::string(text), {}};
  const auto take = [&](std::string_view prefix, int& value) {
    if (!take_prefix(rest, prefix)) return false;
    const auto number = take_number<int>(rest);
    if (number) value = *number;
    return number && value > 0;
  };
  DeviceTraits& traits = device.traits;
  const bool read = take("sm", traits.compute_capability) && take(":", traits.sm_count) &&
                    (rest.empty() || take(":", traits.shared_memory_per_block)) && rest.empty();
  if (!read)
    return Parsed<NamedDevice>::failure("`" + std::string(text) + "` is no GPU: write one of " + preset_names() +
                                        ", or sm<compute capability>:<multiprocessors>, such as sm90:132");
  if (traits.shared_memory_per_block == 0)
    traits.shared_memory_per_block = usual_shared_memory(traits.compute_capability);
  return device;
}

CaptureAnalysis predict(const Capture& capture, const NamedDevice& device, std::span<const Row> rows,
                        const Ceilings& ceilings) {
  CaptureAnalysis analysis{capture.path, device, ceilings, {}, {}};
  for (const flashdma_bwd::Problem& problem : capture.problems) {
    Prediction& prediction = analysis.predictions.emplace_back();
    prediction.problem = problem;
    prediction.selection = select_kernel(device.traits, problem, rows);
    if (prediction.selection.status == SelectionStatus::ok) {
      const Row& row = *prediction.selection.row;
      prediction.kernel = configuration_name(prediction.selection.config);
      prediction.row = std::string(row.file) + ':' + std::to_string(row.line);
    } else {
      prediction.reason = selection_failure(prediction.selection.status, device.traits, problem);
    }
    prediction.work = work_of(problem);
    prediction.floor = floor_of(prediction.work, ceilings);
    add_to_row(analysis, prediction);
  }
  std::stable_sort(analysis.rows.begin(), analysis.rows.end(), [](const PredictedRow& a, const PredictedRow& b) {
    return a.floor_ms != b.floor_ms ? a.floor_ms > b.floor_ms : a.count > b.count;
  });
  return analysis;
}

}  // namespace flashdma_bwd::bench
