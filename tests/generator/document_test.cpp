// The YAML tree: what yaml-cpp's own nodes would lose.
#include "config/document.hpp"

#include "diagnostics/render.hpp"
#include "support/catch.hpp"

namespace flashdma_bwd::generator::test {
namespace {

Node parse(const std::string& text) {
  Diagnostics diagnostics;
  const std::optional<Node> root = parse_document({"a.yaml", "a.yaml", text}, diagnostics);
  INFO(render_text(diagnostics, {}, false));
  REQUIRE(root);
  REQUIRE(diagnostics.empty());
  return *root;
}

}  // namespace

TEST_CASE("a tree keeps order, repeated keys, quotes and places", "[document]") {
  const Node root = parse("b: 1\na: 'x'\nb: [2,\n  \"y\"]\n");
  REQUIRE(root.kind == Node::Kind::map);
  REQUIRE(root.entries.size() == 3);
  CHECK(root.entries[0].key.text == "b");
  CHECK(root.entries[2].key.text == "b");
  CHECK(root.entries[2].key.at.line == 3);
  CHECK_FALSE(root.entries[0].value.quoted);
  CHECK(root.entries[1].value.quoted);
  CHECK(root.entries[1].value.at.column == 4);
  CHECK(root.entries[1].value.at.length == 3);
  const Node& list = root.entries[2].value;
  REQUIRE(list.items.size() == 2);
  CHECK(list.items[1].text == "y");
  CHECK(list.items[1].at.line == 4);
  CHECK(list.items[1].at.column == 3);
}

TEST_CASE("`none` is a word, and nothing is nothing", "[document]") {
  const Node root = parse("a: none\nb:\nc: ~\n");
  CHECK(root.entries[0].value.kind == Node::Kind::scalar);
  CHECK(root.entries[1].value.kind == Node::Kind::null);
  CHECK(root.entries[2].value.kind == Node::Kind::null);
}

TEST_CASE("deep nesting is refused, not followed until the stack ends", "[document]") {
  Diagnostics diagnostics;
  CHECK_FALSE(parse_document({"a.yaml", "a.yaml", std::string(100000, '[')}, diagnostics));
  CHECK(diagnostics.size() == 1);
}

TEST_CASE("lines are found whatever their ends", "[render]") {
  CHECK(line_of("one\ntwo\r\nthree", 1) == "one");
  CHECK(line_of("one\ntwo\r\nthree", 2) == "two");
  CHECK(line_of("one\ntwo\r\nthree", 3) == "three");
  CHECK(line_of("one\ntwo\r\nthree", 4).empty());
}

TEST_CASE("the caret stands below what it points at", "[render]") {
  Diagnostics diagnostics;
  diagnostics.add(Rule::wrong_type, {"a.yaml", 2, 4, 3}, "no", {"because"});
  const std::string text = render_text(diagnostics, {{"a.yaml", "a.yaml", "x: 1\n\tab: cde f\n"}}, false);
  CHECK(text ==
        "a.yaml:2:4: error: no [wrong-type]\n"
        "  2 | \tab: cde f\n"
        "    | \t  ^~~\n"
        "  = note: because\n"
        "1 error\n");
}

TEST_CASE("what a terminal would obey is not printed", "[render]") {
  Diagnostics diagnostics;
  diagnostics.add(Rule::unknown_key, {"a.yaml", 1, 1, 1}, "key \033[2J");
  const std::string text = render_text(diagnostics, {{"a.yaml", "a.yaml", "\033]0;x\007"}}, false);
  CHECK(text.find('\033') == std::string::npos);
  CHECK(text.find('\007') == std::string::npos);
  CHECK(render_json(diagnostics).find('\033') == std::string::npos);
}

TEST_CASE("a NUL byte is none of a text, and so none of UTF-16 is", "[document]") {
  using std::string_literals::operator""s;
  for (const std::string& text : {"a: x\0y\n"s, "a\0:\0 \0x\0"s}) {
    Diagnostics diagnostics;
    CHECK_FALSE(parse_document({"a.yaml", "a.yaml", text}, diagnostics));
    REQUIRE(diagnostics.size() == 1);
    CHECK(diagnostics.sorted().front().message.find("a NUL byte") != std::string::npos);
  }
}

TEST_CASE("only UTF-8 is read, and the first byte that is not is shown", "[document]") {
  for (const char* good :
       {"\xc3\xa9", "\xe2\x82\xac", "\xef\xbb\xbf", "\xed\x9f\xbf", "\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbf"})
    CHECK(parse("a: x" + std::string(good)).entries.size() == 1);
  // A byte of the middle, two forms that are too long, a surrogate, above the last character, cut short, no byte of
  // any.
  for (const char* bad : {"\x80", "\xc0\xaf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe2\x82", "\xff"}) {
    Diagnostics diagnostics;
    // The line before has a character of two bytes, which is one column.
    CHECK_FALSE(parse_document({"a.yaml", "a.yaml", "a: \xc3\xa9\nb: \xc3\xa9" + std::string(bad)}, diagnostics));
    REQUIRE(diagnostics.size() == 1);
    const Diagnostic finding = diagnostics.sorted().front();
    CHECK(finding.rule == Rule::yaml_syntax);
    CHECK(finding.location.line == 2);
    CHECK(finding.location.column == 5);
  }
}

}  // namespace flashdma_bwd::generator::test
