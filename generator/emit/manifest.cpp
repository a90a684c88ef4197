// generated/manifest.json: what the other files say, for programs.
#include <flashdma_bwd/kernel_resources.hpp>
#include <nlohmann/json.hpp>

#include "emit/emit.hpp"
#include "selection/configuration_name.hpp"
#include "selection/row_text.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {

EmittedFile emit_manifest(const Plan& plan) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const Row& row : plan.rows)
    rows.push_back({{"place", std::string(row.file) + ':' + std::to_string(row.line)}, {"text", row_text(row)}});
  Json files = Json::array({"dispatch_table.inc"}), kernels = Json::array();
  for (const TranslationUnit& unit : plan.units) {
    files.push_back(unit.path);
    for (const PlannedKernel& kernel : unit.kernels) {
      const KernelConfig& config = kernel.config;
      Json places = Json::array();
      for (const Row& row : kernel.rows) places.push_back(std::string(row.file) + ':' + std::to_string(row.line));
      kernels.push_back({{"name", kernel.name},
                         {"architecture", word(config.architecture)},
                         {"head_dim", config.head_dim},
                         {"data_type", word(config.data_type)},
                         {"bias", word(config.bias)},
                         {"softcap", config.softcap},
                         {"tile", tile_name(config.tile)},
                         {"shared_memory_bytes", shared_memory_bytes(config)},
                         {"threads", threads_per_block(config.tile)},
                         {"file", unit.path},
                         {"rows", places}});
    }
  }
  files.push_back("manifest.json");
  files.push_back("sources.cmake");
  const Json manifest{
      {"about", std::string(kBannerMark) + ". Do not edit: edit configs/, then run `flashdma-gen generate`."},
      {"profile", plan.profile},
      {"filter", plan.filter},
      {"table_hash", table_hash(plan.rows)},
      {"files", files},
      {"kernels", kernels},
      {"rows", rows}};
  return {"manifest.json", manifest.dump(1) + '\n'};
}

}  // namespace flashdma_bwd::generator
