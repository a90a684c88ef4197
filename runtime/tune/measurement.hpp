// A measurement: all tiles of one problem, timed in the same rounds, and where.
#pragma once

#include <cstdint>
#include <flashdma_bwd/kernel_table.hpp>
#include <span>
#include <string>
#include <vector>

#include "tuning/measured_problem.hpp"

namespace flashdma_bwd::tune {

/// What times depend on beside the problem and the kernel.
struct Environment {
  std::string gpu;
  int compute_capability = 0;  ///< 10 * major + minor
  int sm_count = 0;
  int shared_memory_per_block = 0;  ///< bytes that a block may opt in to
  std::string driver;
  std::string toolkit;
  std::string table_hash;  ///< of the build that measured
  std::string commit;
  friend bool operator==(const Environment&, const Environment&) = default;

  DeviceTraits device() const { return {compute_capability, sm_count, shared_memory_per_block}; }
};

/// Whether times of the one say something of the other: kernels do not depend on the table that chooses among them.
inline bool are_comparable(Environment a, const Environment& b) {
  a.table_hash = b.table_hash;
  return a == b;
}

/// What a candidate's gradients were compared with before it was timed.
enum class Check : std::uint8_t {
  none,
  reference,  ///< the CPU backend in double precision, on this problem
  smaller,    ///< the same on a smaller problem of its kind; on this one a sample of the table's choice's gradients
};

struct Candidate {
  std::string kernel;  ///< canonical name
  generator::Time cold, warm;
  int rounds = 0;
  bool stopped = false;  ///< after `rounds`, because it could no longer win
  Check check = Check::none;
  double error = 0;     ///< the largest relative error of its gradients in that comparison
  std::string failure;  ///< why there are no times; else empty
};

struct Measurement {
  Problem problem;
  Environment environment;
  std::string date;  ///< YYYY-MM-DD
  std::vector<Candidate> candidates;
};

/// The timed tiles. Kernels whose names cannot be read were refused when the record was.
generator::MeasuredProblem measured_problem(const Measurement& measurement);
std::vector<generator::MeasuredProblem> measured_problems(std::span<const Measurement> measurements);

}  // namespace flashdma_bwd::tune
