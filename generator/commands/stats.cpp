// stats: how much there is to compile, and a forecast of what that takes, from the figures in configs/architectures.
#include <algorithm>
#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <ostream>

#include "commands/commands.hpp"
#include "commands/session.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {
namespace {

struct Sums {
  std::size_t kernels = 0;
  std::size_t units = 0;
  double seconds = 0;  ///< on one core
  std::int64_t bytes = 0;
};

KernelCost cost_of(const ArchitectureSpec& spec, int head_dim) {
  const auto bucket = std::find(std::begin(kHeadDimBuckets), std::end(kHeadDimBuckets), head_dim);
  return spec.costs[static_cast<std::size_t>(bucket - std::begin(kHeadDimBuckets))];
}

Sums sums_of(const Plan& plan, const ArchitectureSpec& spec) {
  Sums sums;
  for (const TranslationUnit& unit : plan.units) {
    if (unit.architecture != spec.architecture) continue;
    ++sums.units;
    for (const PlannedKernel& kernel : unit.kernels) {
      const KernelCost cost = cost_of(spec, kernel.config.head_dim);
      ++sums.kernels;
      sums.seconds += cost.seconds;
      sums.bytes += cost.bytes;
    }
  }
  return sums;
}

void print_line(std::ostream& out, std::string_view name, const Sums& sums, std::string_view remark) {
  std::array<char, 512> figures{};  // a double has 309 digits at most
  std::snprintf(figures.data(), figures.size(), "%8zu %8zu %12.1f %12.1f  ", sums.kernels, sums.units,
                sums.seconds / 60, static_cast<double>(sums.bytes) / 1e6);
  constexpr std::size_t kNames = 13;
  out << name << std::string(kNames - std::min(name.size(), kNames), ' ') << figures.data() << remark << '\n';
}

}  // namespace

int run_stats(const Options& options, const Streams& streams) {
  const std::optional<Configuration> configuration = load_valid(options, streams);
  if (!configuration) return kFindings;
  const Profile* profile = chosen_profile(*configuration, options, streams);
  if (profile == nullptr) return kUsage;
  const Plan plan = make_plan(*configuration, *profile, options.filter);

  nlohmann::ordered_json document{{"profile", plan.profile}, {"architectures", nlohmann::ordered_json::array()}};
  const auto as_json = [](const Sums& sums) {
    return nlohmann::ordered_json{{"kernels", sums.kernels},
                                  {"translation_units", sums.units},
                                  {"core_seconds", sums.seconds},
                                  {"bytes", sums.bytes}};
  };
  Sums total;
  bool measured = true;
  if (options.format == Format::text)
    streams.out << "profile " << plan.profile << "\narchitecture  kernels    units core-minutes    megabytes\n";
  for (const ArchitectureSpec& spec : configuration->architectures) {
    const Sums sums = sums_of(plan, spec);
    total.kernels += sums.kernels;
    total.units += sums.units;
    total.seconds += sums.seconds;
    total.bytes += sums.bytes;
    measured = measured && (spec.build_measured || sums.kernels == 0);
    const std::string_view name = word(spec.architecture);
    const std::string remark = (spec.build_measured ? "measured with " : "estimated for ") + spec.build_toolkit;
    if (options.format == Format::text) print_line(streams.out, name, sums, remark);
    nlohmann::ordered_json entry = as_json(sums);
    entry["architecture"] = name;
    entry["toolkit"] = spec.build_toolkit;
    entry["measured"] = spec.build_measured;
    document["architectures"].push_back(std::move(entry));
  }
  if (options.format == Format::json) {
    document["total"] = as_json(total);
    document["total"]["measured"] = measured;
    streams.out << document.dump(2) << '\n';
  } else {
    print_line(streams.out, "all", total, measured ? "" : "a forecast from figures that are not all measured");
  }
  return kFine;
}

}  // namespace flashdma_bwd::generator
