// list: kernels, rows, profiles or architectures, one a line.
#include <flashdma_bwd/kernel_resources.hpp>
#include <nlohmann/json.hpp>
#include <ostream>

#include "commands/commands.hpp"
#include "commands/session.hpp"
#include "emit/emit.hpp"
#include "selection/row_text.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {
namespace {

using Json = nlohmann::ordered_json;

/// The run-time table format: what FLASHDMA_BWD_TABLE reads.
int list_table(const Plan& plan, std::ostream& out) {
  out << kTableFileHeader << '\n';
  for (const Row& row : plan.rows) out << row_text(row) << '\n';
  return kFine;
}

void list_kernels(const Plan& plan, Format format, std::ostream& out) {
  if (format == Format::json) {
    out << Json::parse(emit_manifest(plan).text)["kernels"].dump(2) << '\n';
    return;
  }
  for (const TranslationUnit& unit : plan.units)
    for (const PlannedKernel& kernel : unit.kernels) out << kernel.name << '\n';
}

void list_rows(const Plan& plan, Format format, std::ostream& out) {
  if (format == Format::json) {
    out << Json::parse(emit_manifest(plan).text)["rows"].dump(2) << '\n';
    return;
  }
  for (const Row& row : plan.rows) out << row.file << ':' << row.line << ": " << row_text(row) << '\n';
}

void list_profiles(const Configuration& configuration, Format format, std::ostream& out) {
  Json array = Json::array();
  for (const Profile& profile : configuration.profiles) {
    const std::size_t kernels = kernel_count(make_plan(configuration, profile));
    array.push_back({{"profile", profile.name}, {"kernels", kernels}, {"description", profile.description}});
    if (format == Format::text) out << profile.name << ": " << kernels << " kernels. " << profile.description << '\n';
  }
  if (format == Format::json) out << array.dump(2) << '\n';
}

void list_architectures(const Configuration& configuration, Format format, std::ostream& out) {
  Json array = Json::array();
  for (const ArchitectureSpec& spec : configuration.architectures) {
    array.push_back({{"architecture", word(spec.architecture)},
                     {"compute_capability", spec.compute_capability},
                     {"gpus", spec.gpus},
                     {"registers_per_multiprocessor", spec.registers_per_multiprocessor},
                     {"registers_per_thread", spec.registers_per_thread},
                     {"threads_per_block", spec.threads_per_block},
                     {"shared_memory_per_block", spec.shared_memory_per_block}});
    if (format != Format::text) continue;
    out << word(spec.architecture) << ": " << spec.shared_memory_per_block << " bytes of shared memory a block, "
        << spec.registers_per_thread << " registers a thread;";
    for (const std::string& gpu : spec.gpus) out << (&gpu == &spec.gpus.front() ? " " : ", ") << gpu;
    out << '\n';
  }
  if (format == Format::json) out << array.dump(2) << '\n';
}

}  // namespace

int run_list(const Options& options, const Streams& streams) {
  const std::optional<Configuration> configuration = load_valid(options, streams);
  if (!configuration) return kFindings;
  const Profile* profile = chosen_profile(*configuration, options, streams);
  if (profile == nullptr) return kUsage;
  const Plan plan = make_plan(*configuration, *profile, options.filter);
  const bool of_plan = options.subject == ListSubject::kernels || options.subject == ListSubject::rows;
  if (!of_plan && options.format == Format::table)
    return refuse_usage(streams, "--format table is a form of the rows: ask for `list rows --format table`");
  if (options.subject != ListSubject::kernels && !options.filter.empty())
    return refuse_usage(streams, "--filter has no effect on what is listed but for kernels: leave it out");
  if (options.format == Format::table) return list_table(plan, streams.out);
  switch (options.subject) {
    case ListSubject::kernels:
      list_kernels(plan, options.format, streams.out);
      break;
    case ListSubject::rows:
      list_rows(plan, options.format, streams.out);
      break;
    case ListSubject::profiles:
      list_profiles(*configuration, options.format, streams.out);
      break;
    case ListSubject::architectures:
      list_architectures(*configuration, options.format, streams.out);
      break;
  }
  return kFine;
}

}  // namespace flashdma_bwd::generator
