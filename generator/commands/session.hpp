// What the verbs share: a valid configuration, or the reasons why there is none.
#pragma once

#include <optional>
#include <string_view>

#include "commands/command_line.hpp"
#include "config/model.hpp"
#include "plan/plan.hpp"

namespace flashdma_bwd::generator {

/// Diagnostics to the error stream, in the chosen format.
void report(const Diagnostics& diagnostics, const std::vector<SourceFile>& sources, const Options& options,
            const Streams& streams);

/// Loads and validates --configs. Findings are reported; then there is no configuration.
std::optional<Configuration> load_valid(const Options& options, const Streams& streams);

/// A message about the command line itself, to the error stream. Returns kUsage.
int refuse_usage(const Streams& streams, std::string_view message);

/// The profile of --profile, or nullptr after a message that lists those that there are.
const Profile* chosen_profile(const Configuration& configuration, const Options& options, const Streams& streams);

/// Reports empty-profile where a plan has no kernels.
void check_not_empty(const Plan& plan, const Profile& profile, Diagnostics& diagnostics);

}  // namespace flashdma_bwd::generator
