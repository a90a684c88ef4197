// What a piece of code writes to stderr.
#pragma once

#include <unistd.h>

#include <cstdio>
#include <functional>
#include <string>

#include "support/catch.hpp"

namespace flashdma_bwd::testing {

/// What `body` writes to stderr.
inline std::string captured_stderr(const std::function<void()>& body) {
  std::FILE* file = std::tmpfile();
  REQUIRE(file != nullptr);
  std::fflush(stderr);
  const int saved = dup(STDERR_FILENO);
  dup2(fileno(file), STDERR_FILENO);
  body();
  std::fflush(stderr);
  dup2(saved, STDERR_FILENO);
  close(saved);
  std::string text;
  std::rewind(file);
  for (int c = std::fgetc(file); c != EOF; c = std::fgetc(file)) text += static_cast<char>(c);
  std::fclose(file);
  return text;
}

}  // namespace flashdma_bwd::testing
