// What a benchmark's figures depend on beside the problem.
#pragma once

#include <string>

namespace flashdma_bwd::bench {

struct Environment {
  std::string gpu;
  std::string driver;
  std::string toolkit;
  std::string library;
  std::string table_hash;
  std::string commit;
  friend bool operator==(const Environment&, const Environment&) = default;
};

}  // namespace flashdma_bwd::bench
