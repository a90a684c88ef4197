// Reads the values of a mapping by its list of fields. Everything that is wrong is reported; nothing is thrown.
#pragma once

#include <cstdint>
#include <flashdma_bwd/kernel_table.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/document.hpp"
#include "config/fields.hpp"

namespace flashdma_bwd::generator {

class MapReader {
 public:
  /// Reports a node that is no mapping, unknown keys, keys given twice and required keys that are absent.
  MapReader(const Node& node, const MapFields& fields, Diagnostics& diagnostics);

  /// The value of a key, or nullptr if it is absent. Of a key given twice, the first.
  const Node* find(std::string_view key) const;
  const Location& at() const { return at_; }
  /// Of the key's value; of the mapping where the key is absent.
  Location at(std::string_view key) const;

  // Each is empty where the key is absent or its value was refused with a diagnostic.
  std::optional<std::int64_t> integer(std::string_view key) const;
  std::optional<double> number(std::string_view key) const;
  std::optional<bool> flag(std::string_view key) const;
  std::optional<std::string> text(std::string_view key) const;
  std::optional<std::string> date(std::string_view key) const;
  std::optional<Range> range(std::string_view key) const;
  /// Index into the field's words.
  std::optional<std::uint8_t> word(std::string_view key) const;
  /// One bit for each of the field's words, or for false and true.
  std::optional<std::uint32_t> words(std::string_view key) const;
  std::optional<std::uint32_t> flags(std::string_view key) const;
  std::optional<std::vector<std::int64_t>> integers(std::string_view key) const;
  std::optional<std::vector<std::string>> texts(std::string_view key) const;
  /// The entries of a list, or nullptr.
  const std::vector<Node>* list(std::string_view key) const;

 private:
  const Field& field(std::string_view key) const;
  const Node* scalar(std::string_view key) const;
  std::optional<std::int64_t> integer_of(const Node& node, const Field& field) const;
  std::optional<std::int64_t> bound_of(const Node& node, const Field& field, std::string_view digits) const;
  std::optional<bool> flag_of(const Node& node, const Field& field) const;
  std::optional<std::uint8_t> word_of(const Node& node, const Field& field) const;
  void refuse_type(const Node& node, const Field& field) const;
  /// Refuses a list that is empty or no list.
  bool check_list(const Node& node, const Field& field) const;
  void report_twice(const Node& node) const;

  const MapFields& fields_;
  Diagnostics& diagnostics_;
  Location at_;
  const std::vector<Entry>* entries_ = nullptr;
};

}  // namespace flashdma_bwd::generator
