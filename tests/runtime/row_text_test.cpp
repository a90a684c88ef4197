// Rows as lines of text, and files of them.
#include "selection/row_text.hpp"

#include <flashdma_bwd/kernel_resources.hpp>

#include "selection/vocabulary.hpp"
#include "support/catch.hpp"
#include "tables.hpp"

namespace flashdma_bwd::testing {
namespace {

void check_round_trip(const Row& row) {
  const std::string text = row_text(row);
  const Parsed<OwnedRow> parsed = parse_row(text);
  INFO(text << ": " << parsed.error);
  REQUIRE(parsed);
  const OwnedRow& owned = *parsed.value;
  CHECK(owned.row.architecture == row.architecture);
  CHECK(owned.row.when == row.when);
  CHECK(owned.row.use == row.use);
  CHECK(owned.row.provenance == row.provenance);
  CHECK(owned.provenance_text == row.provenance_text);
}

/// A set of enumerators that is not empty; one with all of them has its one canonical form.
template <class Enum>
EnumSet<Enum> random_set(ProblemSource& source) {
  const auto bits = static_cast<std::uint32_t>(1 + source.below(all_bits<Enum>()));
  return bits == all_bits<Enum>() ? EnumSet<Enum>{} : EnumSet<Enum>{bits};
}

Range random_range(ProblemSource& source, std::int64_t highest) {
  Range range;
  range.low = source.below(highest);
  if (source.below(2) != 0) range.high = range.low + source.below(highest - range.low + 1);
  return range;
}

Row random_row(ProblemSource& source) {
  static constexpr std::string_view kTexts[] = {"sm80's row",     "",           "a: b; c => d # e",
                                                "back\\slash\\n", "two\nlines", " blanks around "};
  const auto choice = [&] { return static_cast<Choice>(source.below(3)); };
  Row row =
      generated_rows()[static_cast<std::size_t>(source.below(static_cast<std::int64_t>(generated_rows().size())))];
  row.when.data_types = random_set<DataType>(source);
  row.when.biases = random_set<BiasKind>(source);
  row.when.layouts = random_set<KeyLayout>(source);
  row.when.softcap = choice();
  row.when.causal = choice();
  row.when.deterministic = choice();
  row.when.masked = choice();
  row.when.bias_copies = choice();
  row.when.seqlen_q = random_range(source, 1 << 20);
  row.when.seqlen_k = random_range(source, std::int64_t{1} << 40);
  row.when.work_items_per_sm = random_range(source, 100);
  row.when.mask_density = random_range(source, 1000);
  row.provenance = static_cast<ProvenanceKind>(source.below(2));
  row.provenance_text = kTexts[source.below(std::size(kTexts))];
  return row;
}

constexpr std::string_view kTile = "ampere_m64n64_w8_s4_kv4_dq2_q2_do1";

}  // namespace

TEST_CASE("the rows of the tables round trip as text") {
  REQUIRE(generated_rows().size() >= std::size(kArchitectures) * std::size(kHeadDimBuckets));
  for (const Row& row : generated_rows()) check_round_trip(row);
}

TEST_CASE("a row with a tile of the Hopper family round trips as text") {
  Row row;
  row.architecture = Architecture::sm90;
  row.when.head_dim = 128;
  row.use = hopper_tile();
  row.provenance_text = "text";
  CHECK(row_text(row) == "sm90 head_dim=128 => hopper_m64n128_wg2_q2_do2_ds2_r24c240 ; derived: text");
  check_round_trip(row);
  row.when.head_dim = 256;
  row.use = hopper_pair_tile();
  CHECK(row_text(row) == "sm90 head_dim=256 => hopper_m64n128_wg2_q2_do1_ds2_r40c232_pair ; derived: text");
  check_round_trip(row);
}

TEST_CASE("rows with any conditions round trip as text") {
  ProblemSource source(11);
  for (int i = 0; i < 2000; ++i) check_round_trip(random_row(source));
}

TEST_CASE("a row's text has the documented form") {
  Row row;
  row.architecture = Architecture::sm90;
  row.when.head_dim = 128;
  row.when.biases.bits = 0b110;
  row.when.causal = Choice::yes;
  row.when.seqlen_k = {0, 4096};
  row.when.seqlen_q = {64};
  row.use = {KernelFamily::ampere, 64, 128, 8, 2, 4, 2, 2, 2, false};
  row.provenance_text = "text";
  CHECK(row_text(row) ==
        "sm90 head_dim=128 bias=key_vector,tile causal=yes seqlen_q=64.. seqlen_k=0..4096 => "
        "ampere_m64n128_w8_s2_kv4_dq2_q2_do2 ; derived: text");
}

TEST_CASE("a malformed row is refused with the reason") {
  const std::string tail = " => " + std::string(kTile) + " ; derived: x";
  const std::pair<std::string, const char*> cases[] = {
      {"", "`` is none of `sm80`"},
      {"sm75 head_dim=64" + tail, "`sm75`"},
      {"sm80" + tail, "`head_dim=<bucket>` is missing"},
      {"sm80 head_dim=80" + tail, "`80` is none of the buckets"},
      {"sm80 head_dim=64 head_dim=64" + tail, "`head_dim` is given twice"},
      {"sm80 head_dim=64 bias=row" + tail, "bias: `row` is none of `none`, `key_vector`, `tile`"},
      {"sm80 head_dim=64 causual=yes" + tail, "did you mean `causal`?"},
      {"sm80 head_dim=64 causal=true" + tail, "causal: `true`"},
      {"sm80 head_dim=64 causal" + tail, "`causal` is no condition"},
      {"sm80 head_dim=64 seqlen_q=5" + tail, "`5` is no range"},
      {"sm80 head_dim=64 seqlen_q=9..5" + tail, "`9..5` is empty"},
      {"sm80 head_dim=64 seqlen_q=0..99999999999999999999" + tail, "is no range"},
      {"sm80 head_dim=64", "` => <tile>` is missing"},
      {"sm80 head_dim=64 => ampere_m64n64", "the tile `ampere_m64n64`"},
      {"sm80 head_dim=64 => ampere_m48n64_w8_s4_kv4_dq2_q2_do1 ; derived: x", "block_m must be 32, 64 or 128"},
      {"sm90 head_dim=192 => hopper_m64n128_wg2_q2_do2_ds2_r24c240 ; derived: x", "cta_pair must be true where"},
      {"sm90 head_dim=128 => hopper_m64n128_wg2_q2_do2_ds2_r24c240_pair ; derived: x", "and only there"},
      {"sm90 head_dim=128 => hopper_m64n128_wg2_q2_do1_ds2_r24c240 ; derived: x", "or 1 with cta_pair"},
      {"sm80 head_dim=64 => hopper_m64n128_wg2_q2_do2_ds2_r24c240 ; derived: x", "its family do not run on sm80"},
      {"sm80 head_dim=64 => " + std::string(kTile), "` ; derived: <text>`"},
      {"sm80 head_dim=64 => " + std::string(kTile) + " ; guessed: x", "`guessed: x`"},
  };
  for (const auto& [text, reason] : cases) {
    const Parsed<OwnedRow> parsed = parse_row(text);
    INFO(text << ": " << parsed.error);
    CHECK_FALSE(parsed);
    CHECK(parsed.error.find(reason) != std::string::npos);
  }
}

TEST_CASE("a table file gives its rows with their places") {
  TableFile file;
  const std::string error =
      file.read("flashdma_bwd table 1\n# a comment\n\nsm80 head_dim=64 => " + std::string(kTile) +
                    " ; derived: first\r\nsm90 head_dim=64 => " + std::string(kTile) + " ; measured: second",
                "mine.txt");
  CHECK(error.empty());
  REQUIRE(file.rows().size() == 2);
  CHECK(file.rows()[0].file == "mine.txt");
  CHECK(file.rows()[0].line == 4);
  CHECK(file.rows()[0].provenance_text == "first");
  CHECK(file.rows()[1].architecture == Architecture::sm90);
  CHECK(file.rows()[1].line == 5);
  CHECK(file.rows()[1].provenance_text == "second");
}

TEST_CASE("a malformed table file names the line") {
  TableFile file;
  CHECK(file.read("", "mine.txt").find("mine.txt:1: the first line must be `flashdma_bwd table 1`") == 0);
  CHECK(file.read("flashdma_bwd table 2\n", "mine.txt").find("mine.txt:1: ") == 0);
  CHECK(file.read("flashdma_bwd table 1\n\nsm80 head_dim=64\n", "mine.txt").find("mine.txt:3: ") == 0);
}

}  // namespace flashdma_bwd::testing
