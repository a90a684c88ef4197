// configs/profiles/NAME.yaml
#include "config/map_reader.hpp"
#include "config/read.hpp"

namespace flashdma_bwd::generator {

std::optional<Profile> read_profile(const SourceFile& source, Diagnostics& diagnostics) {
  const std::optional<Node> root = parse_document(source, diagnostics);
  if (!root) return std::nullopt;
  const std::size_t before = diagnostics.size();
  const MapReader file(*root, kProfileFields, diagnostics);
  Profile profile;
  profile.at = file.at("profile");
  profile.name = file.text("profile").value_or("");
  profile.description = file.text("description").value_or("");
  if (const Node* node = file.find("instantiate")) {
    const MapReader instantiate(*node, kInstantiateFields, diagnostics);
    for (const std::int64_t head_dim : instantiate.integers("head_dim").value_or(std::vector<std::int64_t>{}))
      profile.head_dims.push_back(static_cast<int>(head_dim));
    profile.data_types.bits = instantiate.words("data_type").value_or(0);
    profile.biases.bits = instantiate.words("bias").value_or(0);
    profile.softcap.bits = instantiate.flags("softcap").value_or(0);
  }
  return diagnostics.size() == before ? std::optional(profile) : std::nullopt;
}

}  // namespace flashdma_bwd::generator
