// The report.
#include "report.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "progress.hpp"
#include "record_json.hpp"
#include "selection/configuration_name.hpp"
#include "selection/problem_text.hpp"
#include "selection/row_text.hpp"
#include "tuning/cross_validation.hpp"
#include "tuning/regret.hpp"

namespace flashdma_bwd::tune {
namespace {

using generator::MeasuredProblem;
using generator::Regret;
using generator::Regrets;

std::string percent(double share) {
  return decimal(100 * share, 2) + " %";
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text;
}

std::string line_of(const std::string& what, const Regrets& regrets) {
  constexpr std::size_t kColumn = 60;
  std::string text = "  " + padded(what, kColumn);
  if (regrets.regrets.empty()) return text + "no problem's choice was timed\n";
  text += "median " + percent(regrets.median) + ", worst " + percent(regrets.worst) + " over " +
          std::to_string(regrets.regrets.size());
  if (!regrets.unmeasured.empty())
    text += ", " + std::to_string(regrets.unmeasured.size()) + " more whose choice was not timed";
  return text + '\n';
}

std::string worst_of(const Regrets& regrets) {
  constexpr std::size_t kShown = 5;
  std::vector<const Regret*> sorted;
  for (const Regret& regret : regrets.regrets) sorted.push_back(&regret);
  std::ranges::stable_sort(sorted, std::greater<>(), &Regret::share);
  std::string text;
  for (std::size_t i = 0; i < std::min(kShown, sorted.size()); ++i) {
    const Regret& regret = *sorted[i];
    if (regret.share() <= 0) break;
    text += "  +" + percent(regret.share()) + "  " + problem_text(regret.measured->problem) +
            (regret.chosen->evidence == generator::Evidence::at_least ? ": at least " : ": ") +
            decimal(regret.chosen->cold.ms, 4) + " ms " + tile_name(regret.chosen->tile) + ", best " +
            decimal(regret.best->cold.ms, 4) + " ms " + tile_name(regret.best->tile) + '\n';
  }
  return text.empty() ? text : "where the table of now loses most:\n" + text;
}

std::string rows_text(const ReportInput& input) {
  if (input.rows.empty()) return "no row is asked for\n";
  std::string text =
      std::to_string(input.rows.size()) + (input.rows.size() == 1 ? " row is" : " rows are") + " asked for:\n";
  for (const generator::TunedRow& row : input.rows)
    text += "  " +
            row_text({input.table->architecture,
                      row.when,
                      row.use,
                      ProvenanceKind::measured,
                      std::to_string(row.problems) + " problems, at worst " + percent(row.worst_regret),
                      {},
                      0}) +
            '\n';
  return text;
}

/// Why measurements do not back a row.
std::string reason_of(const generator::RowEvidence& evidence) {
  using generator::Backing;
  const std::string problems = std::to_string(evidence.record.problems) + " measured " +
                               (evidence.record.problems == 1 ? "problem" : "problems");
  switch (evidence.backing) {
    case Backing::no_problem:
      return "no measured problem is one of its own";
    case Backing::not_timed:
      return "its tile was not timed on the problems that it decides";
    case Backing::too_slow:
      return "+" + percent(evidence.record.worst_regret) + " on " + problem_text(evidence.worst->problem);
    case Backing::no_rival:
      return "no other tile was timed on its " + problems;
    case Backing::never_fastest:
      return "the fastest on none of its " + problems + ", at worst +" + percent(evidence.record.worst_regret);
    case Backing::backed:
      break;
  }
  return "";
}

std::string evidence_text(const ReportInput& input) {
  if (input.evidence.empty()) return "";
  const auto backed = std::ranges::count(input.evidence, generator::Backing::backed, &generator::RowEvidence::backing);
  std::string text = "of the table's " + std::to_string(input.evidence.size()) + " rows " + std::to_string(backed) +
                     " are backed: within the bound or the noise on all of their problems, and the fastest on one";
  text += static_cast<std::size_t>(backed) == input.evidence.size() ? "\n" : "; the others:\n";
  for (const generator::RowEvidence& evidence : input.evidence)
    if (evidence.backing != generator::Backing::backed)
      text += "  line " + std::to_string(evidence.row->at.line) + ": " + reason_of(evidence) + '\n';
  return text;
}

}  // namespace

std::string report_text(const ReportInput& input) {
  const Architecture architecture = input.table->architecture;
  std::vector<Row> rows;
  for (const generator::TableRow& row : input.table->rows) rows.push_back(as_row(*input.table, row));
  const std::vector<Row> tuned = generator::with_tuned_rows(rows, architecture, input.rows);
  const auto regrets = [&](const std::vector<Row>& of, std::span<const MeasuredProblem> on) {
    return generator::regrets_of(of, architecture, input.device, on);
  };
  const Regrets now = regrets(rows, input.tuned_on);
  std::string text =
      "regret: how much longer a choice takes than the best of the candidates timed, " + input.times + '\n';
  text += line_of("the table of now, on what was measured", now);
  text += line_of("with the rows asked for, on the same", regrets(tuned, input.tuned_on));
  text += line_of("cross-validated: rows from four fifths, on the other fifth",
                  generator::cross_validate(generator::chosen_by_people(*input.table), architecture, input.device,
                                            input.tuned_on, input.bound));
  if (!input.held_back.empty()) {
    text += line_of("the table of now, on the problems held back", regrets(rows, input.held_back));
    text += line_of("with the rows asked for, on the problems held back", regrets(tuned, input.held_back));
  }
  return text + worst_of(now) + rows_text(input) + evidence_text(input);
}

std::string measurements_text(std::span<const Measurement> measurements) {
  std::string text;
  for (const Measurement& measurement : measurements) {
    const Environment& e = measurement.environment;
    text += problem_text(measurement.problem) + "  (" + e.gpu + ", " + std::to_string(e.sm_count) + " SMs, " +
            e.toolkit + ", driver " + e.driver + ", " + measurement.date + ", commit " + e.commit + ")\n";
    std::vector<const Candidate*> sorted;
    for (const Candidate& candidate : measurement.candidates) sorted.push_back(&candidate);
    std::ranges::stable_sort(sorted, [](const Candidate* a, const Candidate* b) {
      if (a->failure.empty() != b->failure.empty()) return a->failure.empty();
      return a->cold.ms < b->cold.ms;
    });
    for (const Candidate* candidate : sorted) {
      if (!candidate->failure.empty()) {
        text += "  failed: " + candidate->kernel + ": " + candidate->failure + '\n';
        continue;
      }
      text += "  cold " + decimal(candidate->cold.ms, 4) + " ms (spread " + decimal(candidate->cold.spread_ms, 4) +
              "), warm " + decimal(candidate->warm.ms, 4) + " ms (spread " + decimal(candidate->warm.spread_ms, 4) +
              "), " + std::to_string(candidate->rounds) + (candidate->stopped ? " rounds, stopped  " : " rounds  ") +
              candidate->kernel + '\n';
    }
  }
  return text;
}

std::string measurements_json(std::span<const Measurement> measurements) {
  nlohmann::ordered_json array = nlohmann::ordered_json::array();
  for (const Measurement& measurement : measurements)
    array.push_back(nlohmann::ordered_json::parse(record_line(measurement)));
  return array.dump(2) + '\n';
}

}  // namespace flashdma_bwd::tune
