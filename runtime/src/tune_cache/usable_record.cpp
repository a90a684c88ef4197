// See usable_record.hpp.
#include "tune_cache/usable_record.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include "resolve.hpp"

namespace flashdma_bwd {
namespace {

std::string gpu_text(const CacheEnvironment& environment) {
  return "compute capability " + std::to_string(environment.compute_capability / 10) + '.' +
         std::to_string(environment.compute_capability % 10) + " with " + std::to_string(environment.sm_count) +
         " multiprocessors";
}

Usable not_usable(Usability usability, std::string why) {
  Usable usable;
  usable.usability = usability;
  usable.why = std::move(why);
  return usable;
}

std::size_t count_of(const std::vector<Usable>& usable, Usability usability) {
  return static_cast<std::size_t>(
      std::count_if(usable.begin(), usable.end(), [&](const Usable& u) { return u.usability == usability; }));
}

}  // namespace

Usable usable_record(const CacheLine& line, const DispatchTable& table, const CacheEnvironment& environment,
                     const DeviceTraits& device) {
  if (line.kind == LineKind::other_version) return not_usable(Usability::other_version, line.why);
  if (line.kind == LineKind::damaged) return not_usable(Usability::damaged, "no record: " + line.why);
  const CacheEnvironment& other = line.record.environment;
  if (other.table_hash != environment.table_hash)
    return not_usable(Usability::stale, "measured with the tables " + other.table_hash + ", and this library has " +
                                            environment.table_hash);
  if (other.toolkit != environment.toolkit)
    return not_usable(Usability::stale, "measured with a library that CUDA " + other.toolkit + " built, and CUDA " +
                                            environment.toolkit + " built this one");
  if (other != environment)
    return not_usable(Usability::foreign,
                      "measured on " + gpu_text(other) + ", and this GPU has " + gpu_text(environment));
  const KernelEntry* kernel = find_kernel(table.kernels, line.record.kernel);
  if (kernel == nullptr)
    return not_usable(Usability::not_runnable, '`' + line.record.kernel + "` is not in this build");
  const auto form = code_form(kernel->config.architecture, device.compute_capability, table.also_native);
  if (!form) return not_usable(Usability::not_runnable, '`' + line.record.kernel + "` has no code for this GPU");
  if (const std::string why = why_not_served(kernel->config, line.record.problem, device); !why.empty())
    return not_usable(Usability::not_runnable, '`' + line.record.kernel + "` cannot run the problem: " + why);
  return {Usability::usable, {}, kernel, *form, tier_of(kernel->config.architecture, device.compute_capability)};
}

std::string ignored_lines(const std::string& path, const std::vector<CacheLine>& lines,
                          const std::vector<Usable>& usable) {
  const auto first =
      std::find_if(usable.begin(), usable.end(), [](const Usable& u) { return u.usability != Usability::usable; });
  if (first == usable.end()) return {};
  std::string kinds;
  for (const auto& [usability, what] : {std::pair<Usability, std::string_view>{Usability::damaged, "damaged"},
                                        {Usability::other_version, "of another version"},
                                        {Usability::stale, "of other tables or another toolkit"},
                                        {Usability::foreign, "of another GPU"},
                                        {Usability::not_runnable, "of kernels that cannot run here"}})
    if (const std::size_t count = count_of(usable, usability); count > 0)
      kinds += (kinds.empty() ? "" : ", ") + std::to_string(count) + ' ' + std::string(what);
  const CacheLine& line = lines[static_cast<std::size_t>(first - usable.begin())];
  return path + ':' + std::to_string(line.number) + ": ignored: " + first->why + ". Of " +
         std::to_string(lines.size()) + " lines " + std::to_string(lines.size() - count_of(usable, Usability::usable)) +
         " are ignored (" + kinds + ") and stay in the file: delete those that no other GPU or build needs";
}

}  // namespace flashdma_bwd
