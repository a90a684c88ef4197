// The store of measurements: JSON Lines on the disk, to which a measurement is appended, and made durable, before the
// next begins.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "diagnostics/diagnostic.hpp"
#include "diagnostics/source_file.hpp"
#include "measurement.hpp"

namespace flashdma_bwd::tune {

/// What a store says.
struct StoreContents {
  std::vector<Measurement> measurements;  ///< in the order of the file
  std::size_t whole_bytes = 0;            ///< up to the end of the last whole line
  std::string warning;                    ///< about a last line without an end, which is passed over; or empty
};

/// Reports every line that is no record. Pure.
StoreContents read_store(const generator::SourceFile& source, generator::Diagnostics& diagnostics);

/// The text of a file, or what is wrong with `error`. A file that does not exist is empty where `may_be_absent`.
bool read_text_file(const std::filesystem::path& path, bool may_be_absent, std::string& text, std::string& error);

/// An open store, locked against every other process that would append to it.
class Store {
 public:
  Store() = default;
  ~Store();
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Opens or creates the file, locks it and reads it. Returns what is in the way, or an empty text. A last line
  /// without an end is cut off with the first append.
  std::string open(const std::filesystem::path& path);
  /// The file as it was opened.
  const generator::SourceFile& source() const { return source_; }
  /// Appends a record and waits until it is on the disk. Where that fails the file is as it was, and the text says why.
  std::string append(const Measurement& measurement);

 private:
  int file_ = -1;
  generator::SourceFile source_;
  std::size_t bytes_ = 0;  ///< of whole lines
};

}  // namespace flashdma_bwd::tune
