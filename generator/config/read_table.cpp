// configs/tables/NAME.yaml
#include <algorithm>
#include <array>
#include <charconv>

#include "config/map_reader.hpp"
#include "config/read.hpp"
#include "selection/configuration_name.hpp"
#include "selection/kernel_family.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {
namespace {

When read_when(const Node& node, Diagnostics& diagnostics) {
  const MapReader reader(node, kWhenFields, diagnostics);
  When when;
  when.head_dim = static_cast<int>(reader.integer("head_dim").value_or(0));
  // A set of all words is no condition: it reads like one that was left out.
  const auto set = [&]<class Enum>(std::string_view key, EnumSet<Enum>& chosen) {
    const std::optional<std::uint32_t> bits = reader.words(key);
    if (bits && *bits != all_bits<Enum>()) chosen.bits = *bits;
  };
  set("data_type", when.data_types);
  set("bias", when.biases);
  set("layout", when.layouts);
  const auto choice = [&](std::string_view key) {
    const std::optional<bool> value = reader.flag(key);
    return !value ? Choice::any : *value ? Choice::yes : Choice::no;
  };
  when.bias_copies = choice("bias_copies");
  when.softcap = choice("softcap");
  when.causal = choice("causal");
  when.deterministic = choice("deterministic");
  when.masked = choice("masked");
  when.seqlen_q = reader.range("seqlen_q").value_or(when.seqlen_q);
  when.seqlen_k = reader.range("seqlen_k").value_or(when.seqlen_k);
  when.work_items_per_sm = reader.range("work_items_per_sm").value_or(when.work_items_per_sm);
  when.mask_density = reader.range("mask_density").value_or(when.mask_density);
  return when;
}

bool has_field(KernelFamily family, std::string_view name) {
  return std::ranges::any_of(use_fields(family).fields, [&](const Field& field) { return field.name == name; });
}

/// `use` without the keys that only the other family has, which are reported. Empty where `family` was left out and
/// seems to be forgotten: every other finding would follow from that.
std::optional<Node> without_other_family(const Node& use, KernelFamily family, bool is_given,
                                         Diagnostics& diagnostics) {
  const KernelFamily other = family == KernelFamily::hopper ? KernelFamily::ampere : KernelFamily::hopper;
  const std::string wanted = "`family: " + std::string(word(other)) + '`';
  Node own = use;
  own.entries.clear();
  for (const Entry& entry : use.entries) {
    const std::string& key = entry.key.text;
    if (has_field(family, key) || !has_field(other, key)) {
      own.entries.push_back(entry);
      continue;
    }
    const std::string message = '`' + key + "` is a key of the family " + std::string(word(other)) +
                                (is_given ? ", not of " : ", and `use` without `family` is of the family ") +
                                std::string(word(family));
    diagnostics.add(Rule::family_key, entry.key.at, message,
                    {is_given ? "remove it, or write " + wanted + " and the keys of that family"
                              : "add " + wanted + ", or remove the key"});
    if (!is_given) return std::nullopt;
  }
  return own;
}

TileConfig read_use(const Node& node, TableRow& row, Diagnostics& diagnostics) {
  TileConfig tile;
  const auto given = std::ranges::find_if(node.entries, [](const Entry& entry) { return entry.key.text == "family"; });
  const bool is_given = given != node.entries.end();
  if (is_given) {
    Node choice = node;
    choice.entries = {*given};
    const std::optional<std::uint8_t> family = MapReader(choice, kUseFields, diagnostics).word("family");
    if (!family) return tile;
    tile.family = static_cast<KernelFamily>(*family);
  }
  const std::optional<Node> own = without_other_family(node, tile.family, is_given, diagnostics);
  if (!own) return tile;

  const MapFields& fields = use_fields(tile.family);
  const MapReader reader(*own, fields, diagnostics);
  for (const Field& field : fields.fields)
    if (reader.find(field.name) != nullptr) row.use_fields.emplace(field.name, reader.at(field.name));
  for (const TileField& field : tile_fields(tile.family))
    if (field.number != nullptr)
      tile.*field.number = static_cast<int>(reader.integer(field.name).value_or(0));
    else
      tile.*field.flag = reader.flag(field.name).value_or(false);
  return tile;
}

/// The shortest decimal that reads back as the same number.
std::string decimal(double value) {
  std::array<char, 32> buffer{};
  const auto result = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), result.ptr};
}

/// A measurement as one line: "H200, 132 SMs, CUDA 13.0, driver 580.1, 2025-01-31, commit 0123abc: 3.1 ms; next X, 3.3
/// ms".
std::string read_measured(const Node& node, Diagnostics& diagnostics) {
  const MapReader reader(node, kMeasuredFields, diagnostics);
  const auto gpu = reader.text("gpu"), toolkit = reader.text("toolkit"), driver = reader.text("driver"),
             commit = reader.text("commit"), source = reader.text("source"), problem = reader.text("problem"),
             runner_up = reader.text("runner_up");
  const auto date = reader.date("date");
  const auto sm_count = reader.integer("sm_count");
  const auto ms = reader.number("ms"), runner_up_ms = reader.number("runner_up_ms");
  const auto spread_ms = reader.number("spread_ms"), worst_regret = reader.number("worst_regret_percent");
  const auto problems = reader.integer("problems");
  if (runner_up)
    if (const Parsed<TileConfig> tile = parse_tile_name(*runner_up); !tile)
      diagnostics.add(
          Rule::unknown_value, reader.at("runner_up"), "`runner_up` is not the name of a tile: " + tile.error,
          {"a name such as " + tile_name(TileConfig{KernelFamily::ampere, 64, 128, 8, 2, 4, 2, 2, 1, false})});
  if (ms && *ms == 0)
    diagnostics.add(Rule::out_of_range, reader.at("ms"), "`ms` is 0: a time that was measured is more than that");
  if (ms && runner_up_ms && *runner_up_ms < *ms)
    diagnostics.add(Rule::out_of_range, reader.at("runner_up_ms"),
                    "`runner_up_ms` is less than `ms`: the row does not name the faster one",
                    {decimal(*runner_up_ms) + " ms < " + decimal(*ms) + " ms"});
  if (!gpu || !toolkit || !driver || !commit || !runner_up || !date || !sm_count || !ms || !runner_up_ms) return {};
  return *gpu + ", " + std::to_string(*sm_count) + " SMs, " + *toolkit + ", driver " + *driver + ", " + *date +
         ", commit " + *commit + (source ? ", " + *source : "") + (problem ? ", " + *problem : "") + ": " +
         decimal(*ms) + " ms" + (spread_ms ? ", spread " + decimal(*spread_ms) + " ms" : "") + "; next " + *runner_up +
         ", " + decimal(*runner_up_ms) + " ms" +
         (problems ? "; " + std::to_string(*problems) + " problems measured" : "") +
         (worst_regret ? ", at worst " + decimal(*worst_regret) + " % slower than the best" : "");
}

TableRow read_row(const Node& node, Diagnostics& diagnostics) {
  const MapReader reader(node, kRowFields, diagnostics);
  TableRow row;
  row.at = node.at;
  row.when_at = reader.at("when");
  row.use_at = reader.at("use");
  const std::size_t before = diagnostics.size();
  const Node* when = reader.find("when");
  const Node* use = reader.find("use");
  if (when != nullptr) row.when = read_when(*when, diagnostics);
  if (use != nullptr) row.use = read_use(*use, row, diagnostics);
  row.complete = when != nullptr && use != nullptr && diagnostics.size() == before;

  const Node* derived = reader.find("derived");
  const Node* measured = reader.find("measured");
  if (derived != nullptr) row.provenance_text = row.derived = reader.text("derived").value_or("");
  if (measured != nullptr) {
    row.provenance = ProvenanceKind::measured;
    row.provenance_text = (row.derived.empty() ? "" : row.derived + "; ") + read_measured(*measured, diagnostics);
    if (row.complete && diagnostics.size() == before) {
      const MapReader figures(*measured, kMeasuredFields, diagnostics);
      if (figures.text("runner_up") == tile_name(row.use))
        diagnostics.add(Rule::out_of_range, figures.at("runner_up"), "`runner_up` is the row's own tile",
                        {"it is the next best of those that were measured"});
    }
  }
  if (derived == nullptr && measured == nullptr && node.kind == Node::Kind::map)
    diagnostics.add(Rule::provenance_missing, node.at, "the row does not say where its numbers come from",
                    {"add `derived: \"from what\"`, or `measured: {...}` if it was timed on this architecture"});
  return row;
}

}  // namespace

std::optional<Table> read_table(const SourceFile& source, Diagnostics& diagnostics) {
  const std::optional<Node> root = parse_document(source, diagnostics);
  if (!root) return std::nullopt;
  const std::size_t before = diagnostics.size();
  const MapReader file(*root, kTableFields, diagnostics);
  Table table;
  table.name = source.name;
  table.at = file.at("architecture");
  table.rows_at = file.at("rows");
  const auto word = file.word("architecture");
  if (const std::vector<Node>* rows = file.list("rows"))
    for (const Node& node : *rows) table.rows.push_back(read_row(node, diagnostics));
  table.complete = diagnostics.size() == before;
  if (!word) return std::nullopt;
  table.architecture = static_cast<Architecture>(*word);
  return table;
}

}  // namespace flashdma_bwd::generator
