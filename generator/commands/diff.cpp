// diff: which problems run another kernel under other tables. Exact: the regions that rows decide are intersected.
#include <map>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "commands/commands.hpp"
#include "commands/session.hpp"
#include "config/load.hpp"
#include "selection/configuration_name.hpp"
#include "selection/vocabulary.hpp"
#include "validation/coverage.hpp"
#include "validation/validate.hpp"

namespace flashdma_bwd::generator {
namespace {

struct Change {
  Architecture architecture;
  int head_dim;
  std::string before, after;  ///< tiles
  std::vector<Region> regions;
};

Configuration load_side(const std::string& path, Diagnostics& diagnostics) {
  Configuration configuration = load_tables(path, diagnostics);
  for (const Table& table : configuration.tables)
    if (table.complete) validate_coverage(table, diagnostics);
  return configuration;
}

void compare(const Table& before, const Table& after, std::vector<Change>& changes) {
  const Coverage a = cover(before), b = cover(after);
  for (const int head_dim : kHeadDimBuckets) {
    std::map<std::pair<std::string, std::string>, std::vector<Region>> regions;
    for (std::size_t i = 0; i < before.rows.size(); ++i)
      for (std::size_t j = 0; j < after.rows.size(); ++j) {
        const TableRow &x = before.rows[i], &y = after.rows[j];
        if (x.when.head_dim != head_dim || y.when.head_dim != head_dim || x.use == y.use) continue;
        for (const Region& region : b.decided[j])
          for (const Region& common : intersect(a.decided[i], region))
            regions[{tile_name(x.use), tile_name(y.use)}].push_back(common);
      }
    for (auto& [tiles, where] : regions)
      changes.push_back({before.architecture, head_dim, tiles.first, tiles.second, simplify(std::move(where))});
  }
}

}  // namespace

int run_diff(const Options& options, const Streams& streams) {
  Diagnostics diagnostics;
  const Configuration before = load_side(options.before, diagnostics);
  const Configuration after = load_side(options.after, diagnostics);
  if (!diagnostics.empty()) {
    // Of both sides as one: a reader of JSON takes one array.
    std::vector<SourceFile> sources = before.sources;
    sources.insert(sources.end(), after.sources.begin(), after.sources.end());
    report(diagnostics, sources, options, streams);
    return kFindings;
  }

  std::vector<Change> changes;
  std::vector<std::string> only;  // architectures that one side has
  const auto name = [](Architecture a) { return std::string(word(a)); };
  for (const Architecture architecture : kArchitectures) {
    const auto find = [&](const Configuration& configuration) -> const Table* {
      for (const Table& table : configuration.tables)
        if (table.architecture == architecture) return &table;
      return nullptr;
    };
    const Table *a = find(before), *b = find(after);
    if (a != nullptr && b != nullptr) compare(*a, *b, changes);
    if ((a == nullptr) != (b == nullptr))
      only.push_back(name(architecture) + " is only in " + (a != nullptr ? options.before : options.after));
  }

  if (options.format == Format::json) {
    nlohmann::ordered_json document{{"only", only}, {"changes", nlohmann::ordered_json::array()}};
    for (const Change& change : changes) {
      std::vector<std::string> regions;
      for (const Region& region : change.regions) regions.push_back(describe(region));
      document["changes"].push_back({{"architecture", name(change.architecture)},
                                     {"head_dim", change.head_dim},
                                     {"before", change.before},
                                     {"after", change.after},
                                     {"regions", regions}});
    }
    streams.out << document.dump(2) << '\n';
  } else {
    for (const std::string& line : only) streams.out << line << '\n';
    for (const Change& change : changes)
      for (const Region& region : change.regions) {
        const std::string narrowed = describe(region);
        streams.out << name(change.architecture) << " head_dim " << change.head_dim << ", "
                    << (narrowed.empty() ? "every problem" : narrowed) << ": " << change.before << " -> "
                    << change.after << '\n';
      }
    if (only.empty() && changes.empty()) streams.out << "every problem runs the same kernel\n";
  }
  return kFine;
}

}  // namespace flashdma_bwd::generator
