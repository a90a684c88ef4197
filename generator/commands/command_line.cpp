// The options of each verb, and nothing else.
#include "commands/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <ostream>

#include "commands/commands.hpp"
#include "commands/session.hpp"
#include "diagnostics/suggest.hpp"
#include "selection/gpu_presets.hpp"
#include "selection/problem_domain.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd::generator {
namespace {

/// Words of the tables to enumerators.
template <class Enum>
std::map<std::string, Enum> choices() {
  std::map<std::string, Enum> result;
  const std::span<const std::string_view> words = words_of(Enum{});
  for (std::size_t i = 0; i < words.size(); ++i) result.emplace(words[i], static_cast<Enum>(i));
  return result;
}

/// Replaces a word by the number of its enumerator, which is what CLI11 reads an enumeration from.
template <class Enum>
CLI::Validator one_of(const std::map<std::string, Enum>& names) {
  return CLI::Validator(
      [names](std::string& text) {
        if (const auto found = names.find(text); found != names.end()) {
          text = std::to_string(static_cast<int>(found->second));
          return std::string();
        }
        std::vector<std::string_view> words;
        words.reserve(names.size());
        for (const auto& [word, value] : names) words.push_back(word);
        return '`' + text + "` is not " + enumerate(words);
      },
      "");
}

/// Of a path.
CLI::Validator not_empty() {
  return {[](const std::string& text) { return text.empty() ? std::string("the path is empty") : std::string(); }, ""};
}

void add_configs(CLI::App& verb, Options& options) {
  verb.add_option("--configs", options.configs, "the folder with architectures/, tables/ and profiles/")
      ->check(not_empty())
      ->capture_default_str();
}
void add_format(CLI::App& verb, Options& options, bool table = false) {
  std::map<std::string, Format> formats{{"text", Format::text}, {"json", Format::json}};
  if (table) formats.emplace("table", Format::table);
  verb.add_option("--format", options.format,
                  table ? "text, json, or table: what FLASHDMA_BWD_TABLE reads" : "text or json")
      ->transform(one_of(formats))
      ->option_text(table ? "text|json|table" : "text|json");
}
void add_plan(CLI::App& verb, Options& options) {
  verb.add_option("--profile", options.profile, "which problems get kernels: a file of profiles/")
      ->capture_default_str();
  verb.add_option("--filter", options.filter,
                  "only kernels whose canonical name has this text, or matches this pattern of * and ?");
}
void add_output(CLI::App& verb, Options& options) {
  verb.add_option("--output", options.output, "the generated folder")->check(not_empty())->capture_default_str();
}

void add_explain(CLI::App& verb, Options& options) {
  std::vector<std::string> names;
  std::string list;
  for (const GpuPreset& preset : kGpuPresets) {
    names.emplace_back(preset.name);
    list += (list.empty() ? "" : "|") + names.back();
  }
  verb.add_option("--gpu", options.gpus, "a GPU by name; may be given several times")
      ->check(CLI::IsMember(names, CLI::ignore_case))
      ->option_text(list);
  verb.add_option("--compute-capability,--gpu-compute-capability", options.device.compute_capability,
                  "10 * major + minor, for a GPU that has no name here")
      ->check(CLI::Range(10, 9999))
      ->option_text("INT");
  verb.add_option("--sm-count", options.device.sm_count, "its multiprocessors")
      ->check(CLI::Range(1, 1 << 20))
      ->option_text("INT");
  verb.add_option("--shared-memory", options.device.shared_memory_per_block,
                  "bytes that a block may opt in to; the architecture's if not given")
      ->check(CLI::Range(1, 1 << 30))
      ->option_text("INT");
  Problem& p = options.problem;
  verb.add_option("--dtype", p.data_type, "element type")
      ->transform(one_of(choices<DataType>()))
      ->option_text("fp16|bf16 [bf16]");
  verb.add_option("--head-dim", p.head_dim, "a multiple of 8 up to 256")
      ->check(CLI::Range(8, kMaxHeadDim))
      ->capture_default_str();
  verb.add_option("--bias", p.bias, "how the additive bias reaches a score tile")
      ->transform(one_of(choices<BiasKind>()))
      ->option_text("none|key_vector|tile [none]");
  verb.add_flag("--bias-copies", p.bias_copies, "tensor copies can move the tiles of a tile bias and of its gradient");
  verb.add_flag("--softcap", p.softcap, "scores are capped");
  verb.add_flag("--causal", p.causal, "causal, or a window");
  verb.add_flag("--deterministic", p.deterministic, "bitwise the same on every run");
  verb.add_flag("--masked", p.masked, "there is a mask");
  const std::map<std::string, AskedLayout> layouts{{"auto", AskedLayout::automatic},
                                                   {"natural", AskedLayout::natural},
                                                   {"compacted", AskedLayout::compacted},
                                                   {"reordered", AskedLayout::reordered}};
  verb.add_option(
          "--layout", options.layout,
          "order of the keys in the mask's plan; auto: what the library makes of a mask with a row for each query")
      ->transform(one_of(layouts))
      ->option_text("auto|natural|compacted|reordered [auto]");
  verb.add_option("--mask-density", options.mask_density,
                  "active pairs per 1000 that causality and the window leave; 0: unknown")
      ->check(CLI::Range(0, 1000))
      ->option_text("INT [0]");
  // The bounds keep the product of all three within 64 bits.
  const CLI::Range batches(1, 1 << 20), heads(1, 1 << 16), lengths(std::int64_t{1}, kLongestSequence);
  verb.add_option("--batch", p.batch, "sequences")->check(batches)->capture_default_str();
  verb.add_option("--heads", p.heads, "query heads")->check(heads)->capture_default_str();
  verb.add_option("--heads-kv", p.heads_kv, "key and value heads; as many as query heads if not given")->check(heads);
  verb.add_option("--seqlen-q", p.seqlen_q, "queries of the longest sequence")->check(lengths)->capture_default_str();
  verb.add_option("--seqlen-k", p.seqlen_k, "keys of the longest sequence; as many as queries if not given")
      ->check(lengths);
  verb.add_option("--window", p.window, "queries that limits on both sides leave a key, as a causal window does")
      ->check(lengths)
      ->option_text("INT");
}

}  // namespace

int run_command_line(std::vector<std::string> arguments, const Streams& streams) {
  Options options;
  options.problem.head_dim = 128;
  options.problem.batch = 1;
  options.problem.heads = 16;
  options.problem.seqlen_q = 4096;

  CLI::App app("Turns YAML tables of tuned configurations into kernel instantiations and one dispatch table.",
               "flashdma-gen");
  app.require_subcommand(1);
  app.footer(
      "Data goes to standard output, diagnostics to standard error. Exit codes: 0 fine, 1 findings, 2 usage, 3 "
      "internal.");

  CLI::App* generate = app.add_subcommand("generate", "bring generated/ up to date with configs/");
  add_configs(*generate, options);
  add_output(*generate, options);
  add_plan(*generate, options);
  add_format(*generate, options);
  generate->add_flag("--dry-run", options.dry_run, "say what would change, write nothing");

  CLI::App* check = app.add_subcommand("check", "check every rule, and that generated/ is current; write nothing");
  add_configs(*check, options);
  add_output(*check, options);
  add_plan(*check, options);
  add_format(*check, options);
  check->add_flag("--rules", options.rules, "list the rules instead");

  CLI::App* list = app.add_subcommand("list", "name kernels, rows, profiles or architectures");
  const std::map<std::string, ListSubject> subjects{{"kernels", ListSubject::kernels},
                                                    {"rows", ListSubject::rows},
                                                    {"profiles", ListSubject::profiles},
                                                    {"architectures", ListSubject::architectures}};
  list->add_option("subject", options.subject, "what to list")
      ->transform(one_of(subjects))
      ->option_text("kernels|rows|profiles|architectures [kernels]");
  add_configs(*list, options);
  add_plan(*list, options);
  add_format(*list, options, true);

  CLI::App* explain = app.add_subcommand("explain", "say which kernel a problem runs on a GPU, and why");
  add_configs(*explain, options);
  add_format(*explain, options);
  add_explain(*explain, options);

  CLI::App* diff = app.add_subcommand("diff", "say which problems run another kernel under other tables");
  diff->add_option("before", options.before, "a folder like configs/, or one table")->required();
  diff->add_option("after", options.after, "the other one")->required();
  add_format(*diff, options);

  CLI::App* stats = app.add_subcommand("stats", "count what there is to compile and forecast time and size");
  add_configs(*stats, options);
  add_plan(*stats, options);
  add_format(*stats, options);

  // CLI11 would only say that a subcommand is missing.
  if (!arguments.empty() && !arguments[0].starts_with('-')) {
    std::vector<std::string> verbs;
    for (const CLI::App* verb : app.get_subcommands(nullptr)) verbs.push_back(verb->get_name());
    if (std::find(verbs.begin(), verbs.end(), arguments[0]) == verbs.end()) {
      const std::vector<std::string_view> names(verbs.begin(), verbs.end());
      const std::vector<std::string> meant = did_you_mean(arguments[0], names);
      return refuse_usage(streams, "there is no verb `" + arguments[0] + "`; " +
                                       (meant.empty() ? "there is " + enumerate(names) : meant.front()));
    }
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));  // CLI11 takes them reversed
  } catch (const CLI::ParseError& error) {
    return app.exit(error, streams.out, streams.err) == 0 ? kFine : kUsage;
  }
  if (*generate) return run_generate(options, streams);
  if (*check) return run_check(options, streams);
  if (*list) return run_list(options, streams);
  if (*explain) return run_explain(options, streams);
  if (*diff) return run_diff(options, streams);
  return run_stats(options, streams);
}

}  // namespace flashdma_bwd::generator
