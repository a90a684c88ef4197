// Findings as text and as JSON.
#include "diagnostics/render.hpp"

#include <algorithm>
#include <cstddef>
#include <nlohmann/json.hpp>

namespace flashdma_bwd::generator {
namespace {

struct Palette {
  const char* bold = "";
  const char* error = "";
  const char* caret = "";
  const char* reset = "";
};
constexpr Palette kPlain;
constexpr Palette kColoured{"\033[1m", "\033[1;31m", "\033[1;32m", "\033[0m"};

/// Bytes that a terminal would act on become '?', except for UTF-8.
std::string printable(std::string_view text) {
  std::string result(text);
  for (char& c : result)
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f) c = '?';
  return result;
}

void append_excerpt(std::string& text, const Location& at, std::string_view line, const Palette& colour) {
  const std::string number = std::to_string(at.line);
  text += "  " + number + " | " + printable(line) + '\n';
  const std::size_t column = static_cast<std::size_t>(std::max(at.column, 1)) - 1;
  if (column > line.size()) return;
  // Tabs are kept, so that the caret stands below its character whatever a tab's width is.
  std::string indent(line.substr(0, column));
  for (char& c : indent)
    if (c != '\t') c = ' ';
  const std::size_t length = std::clamp<std::size_t>(static_cast<std::size_t>(std::max(at.length, 1)), 1,
                                                     std::max<std::size_t>(1, line.size() - column));
  text += std::string(number.size() + 2, ' ') + " | " + indent + colour.caret + '^' + std::string(length - 1, '~') +
          colour.reset + '\n';
}

}  // namespace

std::string_view line_of(std::string_view text, int line) {
  std::size_t begin = 0;
  for (int i = 1; i < line; ++i) {
    begin = text.find('\n', begin);
    if (begin == std::string_view::npos) return {};
    ++begin;
  }
  std::string_view result = text.substr(begin, text.find('\n', begin) - begin);
  if (!result.empty() && result.back() == '\r') result.remove_suffix(1);
  return result;
}

const SourceFile* find_source(const std::vector<SourceFile>& sources, std::string_view path) {
  for (const SourceFile& source : sources)
    if (source.path == path) return &source;
  return nullptr;
}

std::string render_text(const Diagnostics& diagnostics, const std::vector<SourceFile>& sources, bool colour) {
  const Palette& palette = colour ? kColoured : kPlain;
  std::string text;
  for (const Diagnostic& diagnostic : diagnostics.sorted()) {
    const Location& at = diagnostic.location;
    text += palette.bold + at.file;
    if (at.line > 0) text += ':' + std::to_string(at.line) + ':' + std::to_string(at.column);
    text += std::string(": ") + palette.error + "error: " + palette.reset + palette.bold +
            printable(diagnostic.message) + palette.reset + " [" + std::string(rule_id(diagnostic.rule)) + "]\n";
    const SourceFile* source = find_source(sources, at.file);
    if (source != nullptr && at.line > 0) append_excerpt(text, at, line_of(source->text, at.line), palette);
    for (const std::string& note : diagnostic.notes) text += "  = note: " + printable(note) + '\n';
  }
  if (!diagnostics.empty())
    text += std::to_string(diagnostics.size()) + (diagnostics.size() == 1 ? " error\n" : " errors\n");
  return text;
}

std::string render_json(const Diagnostics& diagnostics) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const Diagnostic& diagnostic : diagnostics.sorted()) {
    array.push_back({{"rule", rule_id(diagnostic.rule)},
                     {"path", diagnostic.location.file},
                     {"line", diagnostic.location.line},
                     {"column", diagnostic.location.column},
                     {"length", diagnostic.location.length},
                     {"message", diagnostic.message},
                     {"notes", diagnostic.notes}});
  }
  // Input may hold any bytes; what is not UTF-8 is replaced, never an exception.
  return array.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + '\n';
}

}  // namespace flashdma_bwd::generator
