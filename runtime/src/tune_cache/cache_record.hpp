// A record of the cache of measured choices: which configuration was the fastest for a problem, where and when.
//
// One line of flat JSON, written in this order, read in any order:
//
//     {"version":1,"compute_capability":90,"sm_count":132,"table_hash":"<16 hexadecimal digits>","toolkit":"13.0",
//      "problem":"<selection/problem_text.hpp>","kernel":"<canonical name>","ms":1.25,"spread_ms":0.01,
//      "runner_up":"<canonical name>","runner_up_ms":1.5,"measured":12,"feasible":14,"date":"2026-01-31T12:00:00Z"}
//
// runner_up and runner_up_ms are left out where nothing else was measured. The version comes first, so that a line of
// another version is known whatever follows.
#pragma once

#include <flashdma_bwd/kernel_table.hpp>
#include <string>
#include <string_view>

#include "selection/parsed.hpp"

namespace flashdma_bwd {

inline constexpr int kCacheVersion = 1;

/// Where a measurement holds: a kind of GPU and a build of the library.
struct CacheEnvironment {
  int compute_capability = 0;  ///< 10 * major + minor
  int sm_count = 0;
  std::string table_hash;  ///< flashdma_bwd_table_hash
  std::string toolkit;     ///< that the library was built with: "13.0"
  friend bool operator==(const CacheEnvironment&, const CacheEnvironment&) = default;
};

struct CacheRecord {
  CacheEnvironment environment;
  Problem problem;
  std::string kernel;     ///< canonical name; it serves the problem as far as its name can tell
  double ms = 0;          ///< of one backward: the median of its samples
  double spread_ms = 0;   ///< distance of their first from their third quartile
  std::string runner_up;  ///< the next in time; empty: nothing else was measured
  double runner_up_ms = 0;
  int measured = 0;  ///< configurations that were measured within the budget, of `feasible`
  int feasible = 0;
  std::string date;  ///< UTC
  friend bool operator==(const CacheRecord&, const CacheRecord&) = default;
};

/// What makes two records the same for a cache: environment, problem and kernel.
bool same_choice(const CacheRecord& a, const CacheRecord& b);

std::string record_text(const CacheRecord& record);

/// A record, or what is wrong with the line. A line of another version is one more thing that is wrong: see
/// `version_of`.
Parsed<CacheRecord> parse_record(std::string_view line);

/// The version that a line begins with, or 0 if it begins with none.
int version_of(std::string_view line);

}  // namespace flashdma_bwd
