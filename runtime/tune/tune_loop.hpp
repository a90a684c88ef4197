// The loop over problems: what is to be measured, what is known already, one record after the other.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "config/model.hpp"
#include "device.hpp"
#include "progress.hpp"
#include "store.hpp"

namespace flashdma_bwd::tune {

/// Which feasible tiles are timed.
enum class CandidateChoice : std::uint8_t {
  compiled,  ///< those that this build has
  near,      ///< those one step from a tile that the table has for the head dim
  all,
};

struct LoopOptions {
  CandidateChoice candidates = CandidateChoice::near;
  std::vector<std::string> filters;  ///< canonical names that match one of them, see generator::matches; empty: all
  int rounds = 15;
  double stop_share = 0.1;
};

/// A problem and the kernels that are to be timed on it, the table's choice first.
struct Task {
  Problem problem;
  std::string incumbent;  ///< empty: no row admits the problem
  std::vector<std::string> kernels;
};

/// The tasks of `problems`, each problem once, without regard to what is compiled.
std::vector<Task> make_tasks(const generator::Configuration& configuration, Architecture architecture,
                             const DeviceTraits& device, std::span<const Problem> problems, const LoopOptions& options);

/// Leaves the kernels that are compiled. Where the table's choice is not among them, it is told in `missing`.
std::vector<Task> compiled_tasks(std::vector<Task> tasks, const std::vector<std::string>& compiled,
                                 std::vector<std::string>& missing);

/// Tasks that the measurements do not answer: none of a comparable environment has all kernels.
std::vector<Task> open_tasks(std::vector<Task> tasks, std::span<const Measurement> known,
                             const Environment& environment);

/// Measures and appends, task by task; what is measured is also put into `known`. A problem that cannot be measured is
/// told and passed over. Returns what ended the loop early, or an empty text.
std::string run_tasks(std::span<const Task> tasks, const Environment& environment,
                      const std::function<std::string()>& today, const LoopOptions& options, Device& device,
                      Store& store, Progress& progress, std::vector<Measurement>& known);

/// The last measurement of each problem in a comparable environment, in the order of the store. Candidates that only an
/// earlier one has are added to it: they were timed in other rounds, but on the same GPU with the same code.
std::vector<Measurement> latest(std::span<const Measurement> measurements, const Environment& environment);

}  // namespace flashdma_bwd::tune
