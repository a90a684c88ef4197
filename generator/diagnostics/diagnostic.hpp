// What is wrong, where, why, and what to do about it.
#pragma once

#include <string>
#include <vector>

#include "diagnostics/rules.hpp"

namespace flashdma_bwd::generator {

/// A stretch of a line. Line and column are 1-based; line 0 means the file as a whole.
struct Location {
  std::string file;
  int line = 0;
  int column = 0;
  int length = 1;
};

struct Diagnostic {
  Rule rule;
  Location location;
  std::string message;             ///< one line, no final full stop
  std::vector<std::string> notes;  ///< arithmetic, suggestions, the command that mends it; one line each
};

/// Findings in the order in which they were made.
class Diagnostics {
 public:
  void add(Rule rule, Location location, std::string message, std::vector<std::string> notes = {});
  bool empty() const { return list_.empty(); }
  std::size_t size() const { return list_.size(); }
  /// By file, line and column; findings at the same place stay in order.
  std::vector<Diagnostic> sorted() const;

 private:
  std::vector<Diagnostic> list_;
};

}  // namespace flashdma_bwd::generator
