// Reading of the environment.
#include "environment.hpp"

#include <charconv>
#include <fstream>
#include <sstream>

#include "absolute_path.hpp"
#include "selection/vocabulary.hpp"

namespace flashdma_bwd {
namespace {

void read_table(Environment& environment, const std::string& path, std::span<const Row> built_in) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  const bool empty = file && file.peek() == std::ifstream::traits_type::eof() && !file.bad();
  if (!file.is_open() || (!empty && !(text << file.rdbuf()))) {
    environment.error =
        "FLASHDMA_BWD_TABLE names " + path + ", which cannot be read: give a file of table rows, or unset it";
    return;
  }
  if (const std::string error = environment.table.read(text.str(), path); !error.empty()) {
    environment.error = "FLASHDMA_BWD_TABLE: " + error + ". `flashdma-gen list` prints rows in the form that is read";
    return;
  }
  environment.has_table = true;
  environment.rows = environment.table.rows();
  environment.rows.insert(environment.rows.end(), built_in.begin(), built_in.end());
}

std::string value_of(const std::function<const char*(const char*)>& get, const char* name) {
  const char* value = get(name);
  return value == nullptr ? "" : value;
}

}  // namespace

void read_environment(Environment& environment, const std::function<const char*(const char*)>& get,
                      std::span<const Row> built_in) {
  environment.kernel = value_of(get, "FLASHDMA_BWD_KERNEL");
  if (const std::string path = value_of(get, "FLASHDMA_BWD_TABLE"); !path.empty())
    read_table(environment, path, built_in);
  if (const std::string name = value_of(get, "FLASHDMA_BWD_ARCH"); !name.empty()) {
    environment.architecture = enumerator<Architecture>(name);
    if (!environment.architecture && environment.error.empty())
      environment.error = "FLASHDMA_BWD_ARCH is `" + name + "`: it must be sm80, sm86, sm89 or sm90, or unset";
  }
  if (const std::string steps = value_of(get, "FLASHDMA_BWD_PIECE_STEPS"); !steps.empty()) {
    const char* end = steps.data() + steps.size();
    const auto [stop, code] = std::from_chars(steps.data(), end, environment.piece_steps);
    if (code != std::errc{} || stop != end || environment.piece_steps <= 0) {
      environment.piece_steps = 0;
      environment.piece_steps_error =
          "FLASHDMA_BWD_PIECE_STEPS is `" + steps + "`: it must be a number of query tiles, 1 or more, or unset";
    }
  }
  environment.tune_error = read_tune_options(get, environment.tune);
  const std::string level = value_of(get, "FLASHDMA_BWD_LOG");
  if (level == "off")
    environment.log = LogLevel::off;
  else if (level == "info")
    environment.log = LogLevel::info;
  else if (!level.empty() && level != "warning")
    environment.log_error = "FLASHDMA_BWD_LOG is `" + level + "`: it must be off, warning or info; warning is used";
  environment.capture = absolute_path(value_of(get, "FLASHDMA_BWD_CAPTURE"));
  const std::string nvtx = value_of(get, "FLASHDMA_BWD_NVTX");
  environment.nvtx = nvtx == "1";
  if (!nvtx.empty() && nvtx != "0" && nvtx != "1")
    environment.nvtx_error = "FLASHDMA_BWD_NVTX is `" + nvtx + "`: it must be 0 or 1; 0 is used";
}

}  // namespace flashdma_bwd
