// The text of an input file, for reading and for showing its lines in diagnostics.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace flashdma_bwd::generator {

struct SourceFile {
  std::string path;  ///< as the user reaches it; shown in diagnostics
  std::string name;  ///< relative to the repository's root, such as configs/tables/sm80.yaml; part of the output
  std::string text;
};

/// A 1-based line without its end, or an empty text past the end.
std::string_view line_of(std::string_view text, int line);

const SourceFile* find_source(const std::vector<SourceFile>& sources, std::string_view path);

}  // namespace flashdma_bwd::generator
