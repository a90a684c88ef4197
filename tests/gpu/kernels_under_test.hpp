// Which compiled kernels can serve a problem, and which problems a kernel serves.
#pragma once

#include <flashdma_bwd/flashdma_bwd.hpp>
#include <set>
#include <string>
#include <vector>

#include "support/problem.hpp"

namespace flashdma_bwd::testing {

/// A kernel's canonical name taken apart: bwd_<arch>_d<bucket>_<dtype>_<tile>_<bias>[_softcap].
struct KernelName {
  std::string text, architecture, head_dim, data_type, bias;
  bool softcap = false;

  explicit KernelName(std::string_view name);
  /// Whether it differs from another in its tile or architecture only, so that it serves the same problems.
  bool serves_what(const KernelName& other) const;
  bool is_hopper() const;
  /// Whether it moves a tile bias by tensor copies, so that it serves only those problems that copies_move_bias.
  bool copies_bias() const;
};

/// Whether tensor copies can move the tile bias and its gradient, as the schema of the tables has it.
bool copies_move_bias(const Arguments& arguments);

/// The compiled kernels whose names hold, one after the other, the parts of the environment variable
/// FLASHDMA_BWD_TEST_KERNELS, such as "_d64_*keybias"; all where it is not set. For runs that are too slow for all of
/// them at once, such as those under compute-sanitizer.
std::vector<KernelName> kernels_under_test();

/// The table's choice first, then every other compiled kernel of any architecture that serves the same problems, as far
/// as they are under test. Those that need a bias that tensor copies move are among them only if this is one. Throws
/// std::runtime_error if selection fails.
std::vector<KernelName> kernels_for(const Arguments& arguments);

/// The problem that a kernel's name asks for, with all of its bucket of head dims: two query heads to a KV head, no
/// mask.
ProblemSpec problem_for(const KernelName& kernel);

/// Makes the problem's bias one that tensor copies move: the gradient of one pair each, rows at multiples of 8
/// elements, keys in their own order.
void make_bias_movable(ProblemSpec& spec);

/// Checks that the names are those of all kernels under test.
void check_all_were_asked_for(const std::set<std::string>& asked_for);

/// Whether a status says that a kernel has no code for this GPU, which is right only if its architecture is not the one
/// that was selected.
bool not_runnable_here(const Status& status);

}  // namespace flashdma_bwd::testing
