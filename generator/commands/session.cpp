// Loading, validating, reporting.
#include "commands/session.hpp"

#include <ostream>

#include "config/load.hpp"
#include "diagnostics/render.hpp"
#include "diagnostics/suggest.hpp"
#include "validation/validate.hpp"

namespace flashdma_bwd::generator {

void report(const Diagnostics& diagnostics, const std::vector<SourceFile>& sources, const Options& options,
            const Streams& streams) {
  if (diagnostics.empty()) return;
  streams.err << (options.format == Format::json ? render_json(diagnostics)
                                                 : render_text(diagnostics, sources, streams.colour));
}

std::optional<Configuration> load_valid(const Options& options, const Streams& streams) {
  Diagnostics diagnostics;
  Configuration configuration = load_configuration(options.configs, diagnostics);
  validate(configuration, diagnostics);
  report(diagnostics, configuration.sources, options, streams);
  if (!diagnostics.empty()) return std::nullopt;
  return configuration;
}

int refuse_usage(const Streams& streams, std::string_view message) {
  streams.err << "flashdma-gen: " << message << '\n';
  return kUsage;
}

const Profile* chosen_profile(const Configuration& configuration, const Options& options, const Streams& streams) {
  if (const Profile* profile = find_profile(configuration, options.profile)) return profile;
  std::vector<std::string_view> names;
  for (const Profile& profile : configuration.profiles) names.push_back(profile.name);
  const std::vector<std::string> meant = did_you_mean(options.profile, names);
  refuse_usage(streams, "there is no profile `" + options.profile + "` in " + options.configs + "/profiles; " +
                            (meant.empty() ? "there is " + enumerate(names) : meant.front()));
  return nullptr;
}

void check_not_empty(const Plan& plan, const Profile& profile, Diagnostics& diagnostics) {
  if (!plan.units.empty()) return;
  diagnostics.add(Rule::empty_profile, profile.at,
                  plan.filter.empty()
                      ? "the profile `" + profile.name + "` instantiates nothing"
                      : "no kernel of the profile `" + profile.name + "` matches --filter " + plan.filter,
                  {"`flashdma-gen list --profile full` names all kernels"});
}

}  // namespace flashdma_bwd::generator
