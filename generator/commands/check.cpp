// check: every rule over configs/, and whether generated/ is what they say. Writes nothing.
#include <algorithm>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string_view>

#include "commands/commands.hpp"
#include "commands/session.hpp"
#include "config/load.hpp"
#include "diagnostics/render.hpp"
#include "output/output_tree.hpp"
#include "validation/validate.hpp"

namespace flashdma_bwd::generator {
namespace {

void list_rules(const Options& options, std::ostream& out) {
  if (options.format == Format::json) {
    nlohmann::ordered_json array = nlohmann::ordered_json::array();
    for (const RuleDescription& rule : all_rules()) array.push_back({{"rule", rule.id}, {"summary", rule.summary}});
    out << array.dump(2) << '\n';
    return;
  }
  constexpr std::size_t kColumn = 22;
  for (const RuleDescription& rule : all_rules())
    out << rule.id << std::string(kColumn - rule.id.size(), ' ') << rule.summary << '\n';
}

/// As one word of a shell's command.
std::string shell_word(const std::string& text) {
  const auto is_plain = [](char c) {
    return ('a' <= c && c <= 'z') || ('A' <= c && c <= 'Z') || ('0' <= c && c <= '9') ||
           std::string_view("_-./+,:=@%").find(c) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain)) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + '\'';
}

/// The command that brings the tree up to date.
std::string remedy(const Options& options) {
  const Options usual;
  std::string command = "flashdma-gen generate";
  if (options.configs != usual.configs) command += " --configs " + shell_word(options.configs);
  if (options.output != usual.output) command += " --output " + shell_word(options.output);
  if (options.profile != usual.profile) command += " --profile " + shell_word(options.profile);
  if (!options.filter.empty()) command += " --filter " + shell_word(options.filter);
  return "`" + command + "` brings it up to date";
}

void check_tree(const Plan& plan, const Options& options, Diagnostics& diagnostics) {
  const TreeComparison tree = compare_tree(options.output, emit(plan));
  const std::vector<std::string> notes{remedy(options)};
  if (!tree.unreadable.empty())
    diagnostics.add(Rule::file_unreadable, {options.output}, tree.unreadable, {"make it readable, and check again"});
  const auto place = [&](const std::string& path) { return Location{options.output + '/' + path}; };
  for (const std::string& path : tree.missing)
    diagnostics.add(Rule::output_missing, place(path), "the generated file does not exist", notes);
  for (const std::string& path : tree.changed)
    diagnostics.add(Rule::output_changed, place(path), "the generated file is not what the tables say", notes);
  for (const std::string& path : tree.orphaned)
    diagnostics.add(Rule::output_orphaned, place(path), "the tables no longer ask for this file", notes);
}

}  // namespace

int run_check(const Options& options, const Streams& streams) {
  if (options.rules) {
    list_rules(options, streams.out);
    return kFine;
  }
  Diagnostics diagnostics;
  const Configuration configuration = load_configuration(options.configs, diagnostics);
  validate(configuration, diagnostics);
  std::string summary;
  nlohmann::ordered_json document{{"ok", false}};
  if (diagnostics.empty()) {
    const Profile* profile = chosen_profile(configuration, options, streams);
    if (profile == nullptr) return kUsage;
    const Plan plan = make_plan(configuration, *profile, options.filter);
    check_not_empty(plan, *profile, diagnostics);
    check_tree(plan, options, diagnostics);
    document["profile"] = plan.profile;
    document["table_hash"] = table_hash(plan.rows);
    document["rows"] = plan.rows.size();
    document["kernels"] = kernel_count(plan);
    summary = options.configs + " and " + options.output + " are in order: " + std::to_string(plan.rows.size()) +
              " rows, " + std::to_string(kernel_count(plan)) + " kernels, profile " + plan.profile + ", tables " +
              table_hash(plan.rows);
  }
  if (options.format == Format::json) {
    document["ok"] = diagnostics.empty();
    document["diagnostics"] = nlohmann::ordered_json::parse(render_json(diagnostics));
    streams.out << document.dump(2) << '\n';
  } else {
    report(diagnostics, configuration.sources, options, streams);
    if (diagnostics.empty()) streams.out << summary << '\n';
  }
  return diagnostics.empty() ? kFine : kFindings;
}

}  // namespace flashdma_bwd::generator
