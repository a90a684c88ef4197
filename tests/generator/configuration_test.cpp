// The shipped configs/, and the model that is read from it.
#include <flashdma_bwd/kernel_resources.hpp>
#include <set>

#include "config/load.hpp"
#include "config/read.hpp"
#include "diagnostics/render.hpp"
#include "generator/files.hpp"
#include "selection/row_text.hpp"
#include "support/catch.hpp"
#include "validation/validate.hpp"

namespace flashdma_bwd::generator::test {
namespace {

/// The configuration of a folder, which has nothing that a rule finds.
Configuration in_order(const std::filesystem::path& configs) {
  Diagnostics diagnostics;
  Configuration configuration = load_configuration(configs, diagnostics);
  validate(configuration, diagnostics);
  INFO(render_text(diagnostics, configuration.sources, false));
  REQUIRE(diagnostics.empty());
  return configuration;
}

Configuration shipped() {
  return in_order(source_dir() / "configs");
}

}  // namespace

TEST_CASE("the shipped configuration is in order", "[configuration]") {
  const Configuration configuration = shipped();
  CHECK(configuration.architectures.size() == std::size(kArchitectures));
  for (const char* profile : {"full", "minimal", "training"}) CHECK(find_profile(configuration, profile) != nullptr);
}

TEST_CASE("the table by which the Ampere family is measured on sm90 is in order, and of that family",
          "[configuration]") {
  const TemporaryFolder folder;
  std::filesystem::copy(source_dir() / "configs", folder.path(), std::filesystem::copy_options::recursive);
  write(folder.path() / "tables/sm90.yaml", read(source_dir() / "runtime/bench/ampere_on_sm90.yaml"));
  const Configuration configuration = in_order(folder.path());
  for (const Table& table : configuration.tables)
    for (const TableRow& row : table.rows)
      CHECK((table.architecture != Architecture::sm90 || row.use.family == KernelFamily::ampere));
}

TEST_CASE("the registers of the shipped architectures are those that the formulas assume", "[configuration]") {
  for (const ArchitectureSpec& spec : shipped().architectures)
    for (const int warps : {4, 8}) {
      TileConfig tile;
      tile.warps = warps;
      const int share = spec.registers_per_multiprocessor / threads_per_block(tile) / 8 * 8;
      CHECK(available_registers(tile) == std::min(share, spec.registers_per_thread));
    }
}

TEST_CASE("the full profile instantiates the whole product", "[configuration]") {
  const Configuration configuration = shipped();
  const Profile* full = find_profile(configuration, "full");
  REQUIRE(full != nullptr);
  CHECK(std::set<int>(full->head_dims.begin(), full->head_dims.end()) ==
        std::set<int>(std::begin(kHeadDimBuckets), std::end(kHeadDimBuckets)));
  for (const DataType type : kDataTypes) CHECK(full->data_types.contains(type));
  for (const BiasKind bias : kBiasKinds) CHECK(full->biases.contains(bias));
  CHECK(full->softcap.contains(false));
  CHECK(full->softcap.contains(true));
}

TEST_CASE("every part of a row is read", "[configuration]") {
  Diagnostics diagnostics;
  const SourceFile source{"t.yaml", "configs/tables/sm90.yaml", R"(architecture: sm90
rows:
- when: {head_dim: 128, data_type: bf16, bias: [key_vector, tile], layout: compacted, softcap: false, causal: true,
         deterministic: true, masked: true, bias_copies: true, seqlen_q: 512, seqlen_k: 4096.., work_items_per_sm: ..8, mask_density: 10..500}
  use: {family: ampere, block_m: 64, block_n: 128, warps: 8, score_warps_m: 2, dkv_warps_n: 4, dq_warps_m: 2, q_stages: 2,
        do_stages: 1, value_in_registers: true}
  derived: "a test"
)"};
  const std::optional<Table> table = read_table(source, diagnostics);
  INFO(render_text(diagnostics, {source}, false));
  REQUIRE(table);
  REQUIRE(table->complete);
  REQUIRE(table->rows.size() == 1);
  When when;
  when.head_dim = 128;
  when.data_types.bits = 2;
  when.biases.bits = 6;
  when.layouts.bits = 2;
  when.softcap = Choice::no;
  when.causal = when.deterministic = when.masked = when.bias_copies = Choice::yes;
  when.seqlen_q = {512, 512};
  when.seqlen_k.low = 4096;
  when.work_items_per_sm.high = 8;
  when.mask_density = {10, 500};
  const Row row = as_row(*table, table->rows[0]);
  CHECK(row.architecture == Architecture::sm90);
  CHECK(row.when == when);
  CHECK(row.use == TileConfig{KernelFamily::ampere, 64, 128, 8, 2, 4, 2, 2, 1, true});
  CHECK(row.provenance == ProvenanceKind::derived);
  CHECK(row.provenance_text == "a test");
  CHECK(row.file == "configs/tables/sm90.yaml");
  CHECK(row.line == 3);
}

TEST_CASE("a row that people chose and the tuner measured says both", "[configuration]") {
  constexpr const char* kRow =
      "architecture: sm90\nrows:\n- {when: {head_dim: 128}, use: {block_m: 64, block_n: 128, warps: 8, "
      "score_warps_m: 2, dkv_warps_n: 4, dq_warps_m: 2, q_stages: 2, do_stages: 1}";
  constexpr const char* kMeasured =
      ", measured: {gpu: G, sm_count: 132, toolkit: T, driver: \"5\", date: 2026-01-31, "
      "commit: c, ms: 1.5, runner_up: ampere_m64n64_w8_s2_kv2_dq2_q2_do2, runner_up_ms: 2}";
  const auto read_row = [&](const std::string& provenance) {
    Diagnostics diagnostics;
    const SourceFile source{"t.yaml", "t.yaml", kRow + provenance + "}\n"};
    const std::optional<Table> table = read_table(source, diagnostics);
    INFO(render_text(diagnostics, {source}, false));
    REQUIRE(table);
    REQUIRE(table->rows.size() == 1);
    return table->rows[0];
  };
  const TableRow measured = read_row(kMeasured);
  CHECK(measured.provenance == ProvenanceKind::measured);
  CHECK(measured.derived.empty());
  const TableRow both = read_row(", derived: \"few keys\"" + std::string(kMeasured));
  CHECK(both.provenance == ProvenanceKind::measured);
  CHECK(both.derived == "few keys");
  CHECK(both.provenance_text == "few keys; " + measured.provenance_text);
  const TableRow derived = read_row(", derived: \"few keys\"");
  CHECK(derived.provenance == ProvenanceKind::derived);
  CHECK(derived.provenance_text == derived.derived);
}

TEST_CASE("every part of a tile of the Hopper family is read", "[configuration]") {
  Diagnostics diagnostics;
  const SourceFile source{"t.yaml", "t.yaml", R"(architecture: sm90
rows:
- when: {head_dim: 128}
  use: {family: hopper, block_m: 64, block_n: 128, consumer_warpgroups: 2, q_stages: 3, do_stages: 2, ds_stages: 2,
        producer_registers: 32, consumer_registers: 232}
  derived: "a test"
- when: {head_dim: 256}
  use: {family: hopper, block_m: 64, block_n: 128, consumer_warpgroups: 2, q_stages: 2, do_stages: 1, ds_stages: 2,
        producer_registers: 40, consumer_registers: 232, cta_pair: true}
  derived: "a test"
)"};
  const std::optional<Table> table = read_table(source, diagnostics);
  INFO(render_text(diagnostics, {source}, false));
  REQUIRE(table);
  REQUIRE(table->complete);
  REQUIRE(table->rows.size() == 2);
  CHECK(table->rows[0].use == TileConfig{.family = KernelFamily::hopper,
                                         .block_m = 64,
                                         .block_n = 128,
                                         .q_stages = 3,
                                         .do_stages = 2,
                                         .consumer_warpgroups = 2,
                                         .ds_stages = 2,
                                         .producer_registers = 32,
                                         .consumer_registers = 232});
  CHECK(table->rows[1].use == TileConfig{.family = KernelFamily::hopper,
                                         .block_m = 64,
                                         .block_n = 128,
                                         .q_stages = 2,
                                         .do_stages = 1,
                                         .consumer_warpgroups = 2,
                                         .ds_stages = 2,
                                         .producer_registers = 40,
                                         .consumer_registers = 232,
                                         .cta_pair = true});
}

TEST_CASE("a set of all words is no condition", "[configuration]") {
  Diagnostics diagnostics;
  const std::string use =
      "use: {block_m: 64, block_n: 64, warps: 8, score_warps_m: 4, dkv_warps_n: 4, dq_warps_m: 2, q_stages: 1, "
      "do_stages: 1}";
  const SourceFile source{"t.yaml", "t.yaml",
                          "architecture: sm90\nrows:\n- {when: {head_dim: 64, bias: [tile, none, key_vector]}, " + use +
                              ", derived: a}\n- {when: {head_dim: 64}, " + use + ", derived: a}\n"};
  const std::optional<Table> table = read_table(source, diagnostics);
  REQUIRE(table);
  REQUIRE(table->rows.size() == 2);
  CHECK(table->rows[0].when == table->rows[1].when);
}

TEST_CASE("every shipped row survives the run-time table format", "[configuration]") {
  for (const Table& table : shipped().tables)
    for (const TableRow& source : table.rows) {
      const Row row = as_row(table, source);
      const Parsed<OwnedRow> parsed = parse_row(row_text(row));
      INFO(row_text(row) << "\n" << parsed.error);
      REQUIRE(parsed);
      CHECK(parsed.value->row.architecture == row.architecture);
      CHECK(parsed.value->row.when == row.when);
      CHECK(parsed.value->row.use == row.use);
      CHECK(parsed.value->row.provenance == row.provenance);
      CHECK(parsed.value->provenance_text == row.provenance_text);
    }
}

}  // namespace flashdma_bwd::generator::test
