// The words that stand for enumerators in tables, names, logs and messages.
#pragma once

#include <array>
#include <cstddef>
#include <flashdma_bwd/kernel_table.hpp>
#include <optional>
#include <span>
#include <string_view>

namespace flashdma_bwd {

/// Words in the order of the enumerators.
inline constexpr std::array<std::string_view, 4> kArchitectureWords = {"sm80", "sm86", "sm89", "sm90"};
inline constexpr std::array<std::string_view, 2> kFamilyWords = {"ampere", "hopper"};
inline constexpr std::array<std::string_view, 2> kDataTypeWords = {"fp16", "bf16"};
inline constexpr std::array<std::string_view, 3> kBiasWords = {"none", "key_vector", "tile"};
inline constexpr std::array<std::string_view, 3> kLayoutWords = {"natural", "compacted", "reordered"};
inline constexpr std::array<std::string_view, 3> kChoiceWords = {"any", "no", "yes"};
inline constexpr std::array<std::string_view, 2> kProvenanceWords = {"derived", "measured"};

constexpr std::span<const std::string_view> words_of(Architecture) {
  return kArchitectureWords;
}
constexpr std::span<const std::string_view> words_of(KernelFamily) {
  return kFamilyWords;
}
constexpr std::span<const std::string_view> words_of(DataType) {
  return kDataTypeWords;
}
constexpr std::span<const std::string_view> words_of(BiasKind) {
  return kBiasWords;
}
constexpr std::span<const std::string_view> words_of(KeyLayout) {
  return kLayoutWords;
}
constexpr std::span<const std::string_view> words_of(Choice) {
  return kChoiceWords;
}
constexpr std::span<const std::string_view> words_of(ProvenanceKind) {
  return kProvenanceWords;
}

template <class Enum>
constexpr std::string_view word(Enum value) {
  return words_of(value)[static_cast<std::size_t>(value)];
}

template <class Enum>
constexpr std::optional<Enum> enumerator(std::string_view text) {
  const std::span<const std::string_view> words = words_of(Enum{});
  for (std::size_t i = 0; i < words.size(); ++i)
    if (words[i] == text) return static_cast<Enum>(i);
  return std::nullopt;
}

/// The set of all enumerators, as the bits that stand for one.
template <class Enum>
constexpr std::uint32_t all_bits() {
  return (std::uint32_t{1} << words_of(Enum{}).size()) - 1;
}

}  // namespace flashdma_bwd
