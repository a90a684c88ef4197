// generate: configs/ to generated/.
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>

#include "commands/commands.hpp"
#include "commands/session.hpp"
#include "output/output_tree.hpp"

namespace flashdma_bwd::generator {
namespace {

void print(const TreeComparison& tree, const Plan& plan, const Options& options, std::ostream& out) {
  if (options.format == Format::json) {
    const nlohmann::ordered_json document{{"output", options.output},
                                          {"profile", plan.profile},
                                          {"dry_run", options.dry_run},
                                          {"kernels", kernel_count(plan)},
                                          {"translation_units", plan.units.size()},
                                          {"table_hash", table_hash(plan.rows)},
                                          {"added", tree.missing},
                                          {"changed", tree.changed},
                                          {"removed", tree.orphaned},
                                          {"unchanged", tree.current.size()}};
    out << document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) << '\n';
    return;
  }
  for (const std::string& path : tree.missing) out << "add     " << path << '\n';
  for (const std::string& path : tree.changed) out << "change  " << path << '\n';
  for (const std::string& path : tree.orphaned) out << "remove  " << path << '\n';
  out << options.output << ": " << kernel_count(plan) << " kernels in " << plan.units.size()
      << " translation units, profile " << plan.profile << ", tables " << table_hash(plan.rows) << "; "
      << tree.missing.size() << " added, " << tree.changed.size() << " changed, " << tree.orphaned.size()
      << " removed, " << tree.current.size() << " as they were"
      << (options.dry_run ? "; nothing was written (--dry-run)" : "") << '\n';
}

}  // namespace

int run_generate(const Options& options, const Streams& streams) {
  const std::optional<Configuration> configuration = load_valid(options, streams);
  if (!configuration) return kFindings;
  const Profile* profile = chosen_profile(*configuration, options, streams);
  if (profile == nullptr) return kUsage;
  const Plan plan = make_plan(*configuration, *profile, options.filter);
  Diagnostics diagnostics;
  check_not_empty(plan, *profile, diagnostics);
  report(diagnostics, configuration->sources, options, streams);
  if (!diagnostics.empty()) return kFindings;

  const std::vector<EmittedFile> files = emit(plan);
  std::optional<TreeLock> lock;
  if (!options.dry_run) lock.emplace(options.output);
  const TreeComparison tree = compare_tree(options.output, files);
  if (!tree.unreadable.empty()) {
    streams.err << "flashdma-gen: " << tree.unreadable << "; nothing was written\n";
    return kInternal;
  }
  if (!options.dry_run) {
    if (const std::string why = update_tree(options.output, files, tree); !why.empty()) {
      streams.err << "flashdma-gen: " << why << '\n';
      return kInternal;
    }
  }
  print(tree, plan, options, streams.out);
  return kFine;
}

}  // namespace flashdma_bwd::generator
