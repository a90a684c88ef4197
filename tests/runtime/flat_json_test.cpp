// Lines of flat JSON: what is read, what is refused and where, and that writing and reading are symmetric.
#include "tune_cache/flat_json.hpp"

#include <limits>

#include "support/catch.hpp"
#include "tables.hpp"

namespace flashdma_bwd::testing {
namespace {

/// The one string of `{"a":<text>}`.
std::string string_of(const std::string& text) {
  const auto parsed = parse_flat_json("{\"a\":" + text + "}");
  INFO(text << ": " << parsed.error);
  REQUIRE(parsed);
  REQUIRE(parsed.value->size() == 1);
  CHECK(parsed.value->front().is_string);
  return parsed.value->front().value;
}

}  // namespace

TEST_CASE("members keep their order, and numbers how they are written") {
  const auto parsed = parse_flat_json(R"( { "one" : 1 , "two":"2","three":-3.50e+1 } )");
  REQUIRE(parsed);
  REQUIRE(parsed.value->size() == 3);
  CHECK(parsed.value->at(0).name == "one");
  CHECK(parsed.value->at(0).value == "1");
  CHECK_FALSE(parsed.value->at(0).is_string);
  CHECK(parsed.value->at(1).value == "2");
  CHECK(parsed.value->at(1).is_string);
  CHECK(parsed.value->at(2).value == "-3.50e+1");
  CHECK(parse_flat_json("{}").value->empty());
}

TEST_CASE("strings have JSON's escapes") {
  CHECK(string_of(R"("a\"b\\c\/d")") == "a\"b\\c/d");
  CHECK(string_of(R"("\b\f\n\r\t")") == "\b\f\n\r\t");
  CHECK(string_of(R"("\u0041\u00e9\u20AC\ud83d\ude00")") == "A\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  CHECK(string_of("\"\xc3\xa9\"") == "\xc3\xa9");
}

TEST_CASE("what is not flat JSON is refused with its column") {
  for (const auto& [line, error] : std::initializer_list<std::pair<const char*, const char*>>{
           {"", "column 1: expected `{`"},
           {"{", "column 2: expected a string in quotes"},
           {"{}x", "column 3: expected the end of the line"},
           {"{\"a\":1,}", "column 8: expected a string in quotes"},
           {"{\"a\" 1}", "column 6: expected `:`"},
           {"{\"a\":1 \"b\":2}", "column 8: expected `,` or `}`"},
           {"{\"a\":1", "column 7: expected `,` or `}`"},
           {"{\"a\":1,\"a\":2}", "column 13: `a` is given twice"},
           {"{\"\":1}", "column 4: a name is empty"},
           {"{\"a\":true}", "column 6: expected a string or a number"},
           {"{\"a\":null}", "column 6: expected a string or a number"},
           {"{\"a\":{}}", "column 6: expected a string or a number"},
           {"{\"a\":[1]}", "column 6: expected a string or a number"},
           {"{\"a\":01}", "column 8: a number begins with 0"},
           {"{\"a\":1.}", "column 8: expected a digit"},
           {"{\"a\":1e}", "column 8: expected a digit"},
           {"{\"a\":-}", "column 7: expected a string or a number"},
           {"{\"a\":\"b}", "column 9: expected the end of the string, `\"`"},
           {"{\"a\":\"\\x\"}", "column 8: expected one of `\"\\/bfnrtu` behind a backslash"},
           {"{\"a\":\"\\u12g4\"}", "column 9: expected four hexadecimal digits"},
           {"{\"a\":\"\\u12\"}", "column 9: expected four hexadecimal digits"},
           {"{\"a\":\"\\ud800\"}", "column 13: half of a surrogate pair"},
           {"{\"a\":\"\\udc00\\ud800\"}", "column 13: half of a surrogate pair"},
           {"{\"a\":\"\t\"}", "column 7: a control character stands in a string"}}) {
    const auto parsed = parse_flat_json(line);
    INFO(line);
    CHECK_FALSE(parsed);
    CHECK(parsed.error == error);
  }
}

TEST_CASE("any string and number is read as it was written") {
  ProblemSource source(3);
  for (int i = 0; i < 2000; ++i) {
    std::string text;
    for (std::int64_t size = source.below(12); size > 0; --size) text += static_cast<char>(source.below(128));
    const std::int64_t count = source.below(std::numeric_limits<std::int64_t>::max()) * (i % 2 == 0 ? 1 : -1);
    const double number = static_cast<double>(1 + source.below(1 << 30)) / static_cast<double>(1 + source.below(999));
    FlatJsonWriter writer;
    writer.add("text", text);
    writer.add("count", count);
    writer.add("number", number);
    INFO(writer.text());
    const auto parsed = parse_flat_json(writer.text());
    INFO(parsed.error);
    REQUIRE(parsed);
    CHECK(parsed.value->at(0).value == text);
    CHECK(parsed.value->at(1).value == std::to_string(count));
    CHECK(std::stod(parsed.value->at(2).value) == number);
  }
}

}  // namespace flashdma_bwd::testing
