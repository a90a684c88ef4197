// All of generated/.
#include "emit/emit.hpp"

#include <algorithm>

namespace flashdma_bwd::generator {

std::vector<EmittedFile> emit(const Plan& plan) {
  std::vector<EmittedFile> files;
  for (const TranslationUnit& unit : plan.units) files.push_back(emit_kernel_unit(unit));
  files.push_back(emit_dispatch_table(plan));
  files.push_back(emit_sources(plan));
  files.push_back(emit_manifest(plan));
  std::sort(files.begin(), files.end(), [](const EmittedFile& a, const EmittedFile& b) { return a.path < b.path; });
  return files;
}

}  // namespace flashdma_bwd::generator
