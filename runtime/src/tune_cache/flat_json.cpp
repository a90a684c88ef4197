// Reading and writing of flat JSON.
#include "tune_cache/flat_json.hpp"

#include <charconv>
#include <cstddef>

#include "selection/line_text.hpp"

namespace flashdma_bwd {
namespace {

bool is_digit(char c) {
  return '0' <= c && c <= '9';
}

void put_utf8(std::uint32_t code, std::string& text) {
  const auto put = [&](std::uint32_t byte) { text += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0u | code >> 6);
    put(0x80u | (code & 0x3fu));
  } else if (code < 0x10000) {
    put(0xe0u | code >> 12);
    put(0x80u | (code >> 6 & 0x3fu));
    put(0x80u | (code & 0x3fu));
  } else {
    put(0xf0u | code >> 18);
    put(0x80u | (code >> 12 & 0x3fu));
    put(0x80u | (code >> 6 & 0x3fu));
    put(0x80u | (code & 0x3fu));
  }
}

constexpr std::string_view kEscapes = "\"\\/bfnrt";
constexpr std::string_view kEscaped = "\"\\/\b\f\n\r\t";

/// A place in a line. Each function returns what is wrong there, or nothing.
class Reader {
 public:
  explicit Reader(std::string_view line) : line_(line) {}

  std::string read(std::vector<JsonMember>& members) {
    skip_blanks();
    if (!take('{')) return expected("`{`");
    skip_blanks();
    if (!take('}')) {
      do {
        JsonMember member;
        if (std::string error = read_member(member); !error.empty()) return error;
        for (const JsonMember& other : members)
          if (other.name == member.name) return at() + quoted(member.name) + " is given twice";
        members.push_back(std::move(member));
      } while (take(','));
      if (!take('}')) return expected("`,` or `}`");
      skip_blanks();
    }
    return at_end() ? std::string() : expected("the end of the line");
  }

 private:
  bool at_end() const { return next_ == line_.size(); }
  char peek() const { return at_end() ? '\0' : line_[next_]; }
  bool take(char c) {
    if (at_end() || line_[next_] != c) return false;
    ++next_;
    return true;
  }
  void skip_blanks() {
    while (take(' ')) {
    }
  }
  std::string at() const { return "column " + std::to_string(next_ + 1) + ": "; }
  std::string expected(std::string_view what) const { return at() + "expected " + std::string(what); }

  std::string read_member(JsonMember& member) {
    skip_blanks();
    if (std::string error = read_string(member.name); !error.empty()) return error;
    if (member.name.empty()) return at() + "a name is empty";
    skip_blanks();
    if (!take(':')) return expected("`:`");
    skip_blanks();
    member.is_string = peek() == '"';
    if (std::string error = member.is_string ? read_string(member.value) : read_number(member.value); !error.empty())
      return error;
    skip_blanks();
    return {};
  }

  std::string read_string(std::string& value) {
    if (!take('"')) return expected("a string in quotes");
    while (!at_end() && line_[next_] != '"') {
      const char c = line_[next_];
      if (static_cast<unsigned char>(c) < 0x20) return at() + "a control character stands in a string";
      if (c != '\\') {
        value += c;
        ++next_;
      } else if (std::string error = read_escape(value); !error.empty()) {
        return error;
      }
    }
    return take('"') ? std::string() : expected("the end of the string, `\"`");
  }

  std::string read_escape(std::string& value) {
    take('\\');
    if (take('u')) return read_code_point(value);
    const std::size_t found = at_end() ? std::string_view::npos : kEscapes.find(line_[next_]);
    if (found == std::string_view::npos) return expected("one of `\"\\/bfnrtu` behind a backslash");
    value += kEscaped[found];
    ++next_;
    return {};
  }

  std::string read_code_point(std::string& value) {
    std::uint32_t code = 0;
    if (std::string error = read_hexadecimal(code); !error.empty()) return error;
    if (code >= 0xd800 && code <= 0xdfff) {  // half of a character beyond 16 bits
      std::uint32_t low = 0;
      if (code > 0xdbff || !take('\\') || !take('u')) return at() + "half of a surrogate pair";
      if (std::string error = read_hexadecimal(low); !error.empty()) return error;
      if (low < 0xdc00 || low > 0xdfff) return at() + "half of a surrogate pair";
      code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
    }
    put_utf8(code, value);
    return {};
  }

  std::string read_hexadecimal(std::uint32_t& code) {
    const std::string_view digits = line_.substr(next_, 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (error != std::errc() || end != digits.data() + 4) return expected("four hexadecimal digits");
    next_ += 4;
    return {};
  }

  std::string read_number(std::string& value) {
    const std::size_t begin = next_;
    take('-');
    const bool leading_zero = peek() == '0';
    const std::size_t digits = take_digits();
    if (digits == 0) return expected("a string or a number");
    if (leading_zero && digits > 1) return at() + "a number begins with 0";
    if (take('.') && take_digits() == 0) return expected("a digit");
    if (take('e') || take('E')) {
      if (!take('+')) take('-');
      if (take_digits() == 0) return expected("a digit");
    }
    value = line_.substr(begin, next_ - begin);
    return {};
  }
  std::size_t take_digits() {
    const std::size_t begin = next_;
    while (is_digit(peek())) ++next_;
    return next_ - begin;
  }

  std::string_view line_;
  std::size_t next_ = 0;
};

}  // namespace

Parsed<std::vector<JsonMember>> parse_flat_json(std::string_view line) {
  std::vector<JsonMember> members;
  if (std::string error = Reader(line).read(members); !error.empty())
    return Parsed<std::vector<JsonMember>>::failure(error);
  return members;
}

void FlatJsonWriter::begin(std::string_view name) {
  if (text_.size() > 1) text_ += ',';
  put_string(name);
  text_ += ':';
}

void FlatJsonWriter::put_string(std::string_view value) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  text_ += '"';
  for (const char c : value) {
    const std::size_t escape = c == '/' ? std::string_view::npos : kEscaped.find(c);
    const auto byte = static_cast<unsigned char>(c);
    if (escape != std::string_view::npos) {
      text_ += '\\';
      text_ += kEscapes[escape];
    } else if (byte < 0x20) {
      text_ += "\\u00";
      text_ += kDigits[byte >> 4];
      text_ += kDigits[byte & 0xfu];
    } else {
      text_ += c;
    }
  }
  text_ += '"';
}

void FlatJsonWriter::add(std::string_view name, std::string_view value) {
  begin(name);
  put_string(value);
}

void FlatJsonWriter::add(std::string_view name, std::int64_t value) {
  begin(name);
  text_ += std::to_string(value);
}

void FlatJsonWriter::add(std::string_view name, double value) {
  begin(name);
  char digits[32];
  text_.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
}

}  // namespace flashdma_bwd
