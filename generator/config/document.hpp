// A YAML document as a tree in which every key and every value knows its place.
//
// The tree keeps what yaml-cpp's own nodes lose: the order of keys, keys given twice, and whether a scalar was quoted.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "diagnostics/diagnostic.hpp"
#include "diagnostics/source_file.hpp"

namespace flashdma_bwd::generator {

struct Entry;

struct Node {
  enum class Kind : std::uint8_t { null, scalar, sequence, map };
  Kind kind = Kind::null;
  Location at;
  std::string text;     ///< of a scalar
  bool quoted = false;  ///< a scalar that is text whatever it looks like
  std::vector<Node> items;
  std::vector<Entry> entries;  ///< of a map, in the order of the file
};

struct Entry {
  Node key;
  Node value;
};

/// Parses the only document of a file. Reports yaml-syntax, yaml-feature or file-empty; empty where there is no tree.
std::optional<Node> parse_document(const SourceFile& source, Diagnostics& diagnostics);

}  // namespace flashdma_bwd::generator
