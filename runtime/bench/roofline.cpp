// A problem against ceilings. See roofline.hpp.
#include "roofline.hpp"

#include <cstdio>

namespace flashdma_bwd::bench {
namespace {

template <class... Values>
std::string formatted(const char* format, Values... values) {
  char text[256];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

std::string bytes_text(const Traffic& bytes) {
  std::string text = formatted("%.2f MB: ", bytes.total() * 1e-6);
  const struct {
    const char* name;
    double count;
  } parts[] = {
      {"tensors", bytes.tensors}, {"lse", bytes.lse}, {"bias", bytes.bias}, {"mask", bytes.mask}, {"plan", bytes.plan}};
  const char* separator = "";
  for (const auto& [name, count] : parts) {
    if (count == 0) continue;
    text += separator + formatted("%s %.2f", name, count * 1e-6);
    separator = ", ";
  }
  return text;
}

std::string floor_text(const Floor& floor, const Ceilings& ceilings) {
  if (floor.ms <= 0) return "not known: no ceiling was measured";
  std::string text = formatted("%.4f ms", floor.ms);
  text += floor.compute_ms > 0 ? formatted("; compute %.4f ms at %.1f TFLOP/s", floor.compute_ms, ceilings.dense_tflops)
                               : std::string("; compute not known");
  text += floor.memory_ms > 0 ? formatted(", memory %.4f ms at %.0f GB/s", floor.memory_ms, ceilings.copy_gb_per_s)
                              : std::string(", memory not known");
  return text;
}

std::string bound_text(const Floor& floor) {
  if (floor.bound == Bound::unknown) return "unknown";
  std::string text = bound_word(floor.bound);
  if (floor.compute_ms <= 0 || floor.memory_ms <= 0) return text + ", of the one that is known";
  const double other = floor.bound == Bound::compute ? floor.memory_ms : floor.compute_ms;
  return text + formatted(": the other is %.1f %% of it", 100 * other / floor.ms);
}

std::string time_text(double ms, const Work& work, const Floor& floor) {
  std::string text = formatted("%.4f ms, %.1f TFLOP/s of the active pairs", ms, work.flops / (ms * 1e9));
  if (floor.ms > 0) text += formatted(", %.1f %% of the floor's speed", 100 * floor.ms / ms);
  return text;
}

std::string lines(const std::string& heading, const Work& work, double ms, const Ceilings& ceilings) {
  const Floor floor = floor_of(work, ceilings);
  return "  " + heading + "\n    bytes     " + bytes_text(work.bytes) + "\n    floor     " +
         floor_text(floor, ceilings) + "\n    bound     " + bound_text(floor) + "\n    measured  " +
         time_text(ms, work, floor) + '\n';
}

}  // namespace

std::string ceilings_text(const Ceilings& ceilings) {
  std::string text = "dense ceiling: ";
  text += ceilings.dense_tflops > 0 ? formatted("%.1f TFLOP/s, ", ceilings.dense_tflops) + ceilings.dense_source
                                    : std::string("not known");
  text += "\ncopy bandwidth: ";
  text += ceilings.copy_gb_per_s > 0 ? formatted("%.0f GB/s, ", ceilings.copy_gb_per_s) + ceilings.copy_source
                                     : std::string("not known");
  return text + '\n';
}

std::string roofline_text(const Problem& problem, const RooflineTimes& times, const Ceilings& ceilings) {
  const Work built = work_of(problem, times.active_fraction, PlanUse::built);
  std::string text = problem_text(problem) + "\n  kernel      " + times.kernel + " (" + times.row + ")\n";
  if (!times.layout.empty()) text += "  mask        " + times.layout + '\n';
  text +=
      formatted("  operations  %.2f GFLOP of %.2f %% of all pairs\n", built.flops * 1e-9, 100 * times.active_fraction);
  const bool masked = problem.mask != MaskShape::none;
  text += lines(masked ? "backward, the mask's plan built" : "backward", built, times.ms, ceilings);
  if (times.planned_ms > 0)
    text += lines("backward, the mask's plan given", work_of(problem, times.active_fraction, PlanUse::given),
                  times.planned_ms, ceilings);
  return text;
}

}  // namespace flashdma_bwd::bench
