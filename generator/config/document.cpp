// The only user of yaml-cpp: its event stream, turned into a tree.
#include "config/document.hpp"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <cstddef>
#include <sstream>
#include <string_view>
#include <utility>

#include "config/utf8.hpp"

namespace flashdma_bwd::generator {
namespace {

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(const SourceFile& source, Diagnostics& diagnostics) : source_(source), diagnostics_(diagnostics) {}

  std::optional<Node> take() { return std::move(root_); }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    place(make(Node::Kind::null, mark));
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    diagnostics_.add(Rule::yaml_feature, location(mark), "aliases are not used in these files",
                     {"write the value out: a row is to be read on its own"});
    place(make(Node::Kind::null, mark));
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    Node node = make(Node::Kind::scalar, mark);
    node.text = value;
    node.quoted = tag == "!";
    node.at.length = static_cast<int>(value.size()) + (node.quoted ? 2 : 0);
    place(std::move(node));
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(Node::Kind::sequence, mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(Node::Kind::map, mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

  Location location(const YAML::Mark& mark) const { return {source_.path, mark.line + 1, mark.column + 1, 1}; }

 private:
  struct Frame {
    Node node;
    std::optional<Node> key;
  };

  Node make(Node::Kind kind, const YAML::Mark& mark) const {
    Node node;
    node.kind = kind;
    node.at = location(mark);
    return node;
  }
  void open(Node::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    stack_.push_back({make(kind, mark), std::nullopt});
  }
  void close() {
    Node node = std::move(stack_.back().node);
    stack_.pop_back();
    place(std::move(node));
  }
  void place(Node node) {
    if (stack_.empty()) {
      root_ = std::move(node);
      return;
    }
    Frame& frame = stack_.back();
    if (frame.node.kind == Node::Kind::sequence) {
      frame.node.items.push_back(std::move(node));
    } else if (!frame.key) {
      frame.key = std::move(node);
    } else {
      frame.node.entries.push_back({std::move(*frame.key), std::move(node)});
      frame.key.reset();
    }
  }
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) {
    if (anchor != YAML::NullAnchor)
      diagnostics_.add(Rule::yaml_feature, location(mark), "anchors are not used in these files",
                       {"write the value out: a row is to be read on its own"});
  }
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) {
    if (!tag.empty() && tag != "?" && tag != "!")
      diagnostics_.add(Rule::yaml_feature, location(mark), "tags are not used in these files",
                       {"remove `" + tag + "`"});
  }

  const SourceFile& source_;
  Diagnostics& diagnostics_;
  std::vector<Frame> stack_;
  std::optional<Node> root_;
};

/// Reports the first byte that begins no character, or none of a text. Returns whether there is none.
bool check_utf8(const SourceFile& source, Diagnostics& diagnostics) {
  constexpr char kDigits[] = "0123456789abcdef";
  Location at{source.path, 1, 1, 1};
  for (std::string_view rest = source.text; !rest.empty(); ++at.column) {
    const std::size_t size = utf8_character_bytes(rest);
    if (size == 0) {
      const auto byte = static_cast<unsigned char>(rest.front());
      diagnostics.add(
          Rule::yaml_syntax, at,
          std::string("not UTF-8: the byte 0x") + kDigits[byte / 16] + kDigits[byte % 16] + " begins no character",
          {"save the file as UTF-8"});
      return false;
    }
    // YAML has no NUL; UTF-16 has one for each letter.
    if (rest.front() == '\0') {
      diagnostics.add(Rule::yaml_syntax, at, "not YAML: a NUL byte", {"save the file as UTF-8"});
      return false;
    }
    if (rest.front() == '\n') ++at.line, at.column = 0;
    rest.remove_prefix(size);
  }
  return true;
}

}  // namespace

std::optional<Node> parse_document(const SourceFile& source, Diagnostics& diagnostics) {
  if (!check_utf8(source, diagnostics)) return std::nullopt;
  TreeBuilder builder(source, diagnostics);
  try {
    std::istringstream stream(source.text);
    YAML::Parser parser(stream);
    parser.HandleNextDocument(builder);
    std::optional<Node> root = builder.take();
    if (!root || root->kind == Node::Kind::null) {
      diagnostics.add(Rule::file_empty, {source.path}, "the file holds no document");
      return std::nullopt;
    }
    TreeBuilder second(source, diagnostics);
    if (parser.HandleNextDocument(second)) {
      Location at{source.path};
      if (const std::optional<Node> other = second.take()) at = other->at;
      diagnostics.add(Rule::yaml_feature, at, "a second document in the file", {"one file describes one thing"});
    }
    return root;
  } catch (const YAML::Exception& exception) {
    diagnostics.add(Rule::yaml_syntax,
                    exception.mark.is_null() ? Location{source.path} : builder.location(exception.mark),
                    "not YAML: " + exception.msg);
    return std::nullopt;
  }
}

}  // namespace flashdma_bwd::generator
