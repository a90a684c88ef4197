// generated/sources.cmake: the translation units of each architecture, as lists.
#include "emit/emit.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {

EmittedFile emit_sources(const Plan& plan) {
  std::string text = "# " + std::string(kBannerMark) +
                     ". Do not edit: edit configs/, then run `flashdma-gen generate`.\n"
                     "# The translation units of each architecture, relative to this file.\n";
  for (const Architecture architecture : kArchitectures) {
    text += "set(FLASHDMA_BWD_SOURCES_" + std::string(word(architecture));
    for (const TranslationUnit& unit : plan.units)
      if (unit.architecture == architecture) text += "\n    " + unit.path;
    text += ")\n";
  }
  return {"sources.cmake", text};
}

}  // namespace flashdma_bwd::generator
