// flashdma-bench report. See report.hpp.
#include "commands/report.hpp"

#include <algorithm>
#include <cstdio>
#include <span>

#include "commands/exit_codes.hpp"
#include "finite_number.hpp"
#include "report/analysis.hpp"
#include "report/chart.hpp"
#include "report/density_plot.hpp"
#include "report/input_files.hpp"
#include "report/page.hpp"
#include "report/predictions.hpp"
#include "report/write_file.hpp"

#if !defined(FLASHDMA_BWD_SHARED)
#include "dispatch_table.hpp"
#endif

namespace flashdma_bwd::bench {
namespace {

int refuse(int code, const std::string& why) {
  std::fprintf(stderr, "flashdma-bench: %s\n", why.c_str());
  return code;
}

/// The rows of this build's tables; a shared library hides them.
std::span<const Row> table_rows() {
#if !defined(FLASHDMA_BWD_SHARED)
  return dispatch_table().rows;
#else
  return {};
#endif
}

// Results of the GPU that a device names have its ceilings, too.
Ceilings ceilings_for(const NamedDevice& device, const Inputs& inputs, const Ceilings& given) {
  std::vector<const ResultsFile*> files;
  for (const ResultsFile& file : inputs.results) {
    const std::string words = ' ' + file.environment.gpu + ' ';
    if (words.find(' ' + device.name + ' ') != std::string::npos) files.push_back(&file);
  }
  return ceilings_of(files, given);
}

int write(const ReportOptions& options, const std::string& text) {
  const std::string why = write_file(options.output, text);
  return why.empty() ? kFine : refuse(kFailure, why);
}

int write_plot(const ReportOptions& options, const Inputs& inputs) {
  if (!inputs.captures.empty())
    return refuse(kUsage, inputs.captures.front().path + " has problems without times: a plot needs results");
  const DensityPlot plot = density_plot(inputs.results, options.ceilings);
  if (!plot.error.empty()) return refuse(kFailure, plot.error);
  return write(options, chart_file(plot.chart));
}

int write_page(const ReportOptions& options, const Inputs& inputs) {
  std::vector<NamedDevice> devices;
  for (const std::string& text : options.devices) {
    Parsed<NamedDevice> device = parse_device(text);
    if (!device) return refuse(kUsage, "--device: " + device.error);
    devices.push_back(std::move(*device.value));
  }
  if (!inputs.captures.empty() && devices.empty())
    return refuse(kUsage, inputs.captures.front().path +
                              " has problems without times: which kernels they run depends on the GPU, so say which, "
                              "such as --device H200 or --device sm90:132");
  if (inputs.captures.empty() && !devices.empty())
    return refuse(kUsage, "--device is for captures, and no file is one");
  if (!inputs.captures.empty() && table_rows().empty())
    return refuse(kFailure, "this build's tables are hidden in a shared library: build with BUILD_SHARED_LIBS=OFF");
  std::vector<CaptureAnalysis> captures;
  for (const Capture& capture : inputs.captures)
    for (const NamedDevice& device : devices)
      captures.push_back(predict(capture, device, table_rows(), ceilings_for(device, inputs, options.ceilings)));
  return write(options, report_page(analyse(inputs.results, options.ceilings), captures));
}

}  // namespace

CLI::App* add_report(CLI::App& app, ReportOptions& options) {
  CLI::App* report =
      app.add_subcommand("report", "Makes one HTML page of files of results (--json) and of captures; needs no GPU");
  report->add_option("files", options.files, "Files of results, or of problems (FLASHDMA_BWD_CAPTURE)")->required();
  report->add_option("--output", options.output, "The file to write")->required();
  report->add_option("--plot", options.plot, "Instead of a page an SVG: time against the density of the mask")
      ->check(CLI::IsMember({"density"}));
  report
      ->add_option("--device", options.devices,
                   "The GPU that captured problems are for: a name, such as H200, or sm<compute "
                   "capability>:<multiprocessors>, such as sm90:132; may be given several times")
      ->allow_extra_args(false);
  report
      ->add_option("--dense-tflops", options.ceilings.dense_tflops,
                   "The dense ceiling, TFLOP/s; without it that of the files, or their fastest dense result")
      ->check(CLI::PositiveNumber)
      ->check(finite_number());
  report
      ->add_option("--copy-gbps", options.ceilings.copy_gb_per_s,
                   "The copy bandwidth, 10^9 bytes read and written a second; without it that of the files")
      ->check(CLI::PositiveNumber)
      ->check(finite_number());
  return report;
}

int run_report(const ReportOptions& options) {
  std::vector<std::string> errors;
  const Inputs inputs = read_input_files(options.files, errors);
  for (const std::string& error : errors) std::fprintf(stderr, "%s\n", error.c_str());
  if (!errors.empty()) return refuse(kFailure, "nothing was written");
  ReportOptions with_sources = options;
  if (options.ceilings.dense_tflops > 0) with_sources.ceilings.dense_source = "given by --dense-tflops";
  if (options.ceilings.copy_gb_per_s > 0) with_sources.ceilings.copy_source = "given by --copy-gbps";
  return options.plot.empty() ? write_page(with_sources, inputs) : write_plot(with_sources, inputs);
}

}  // namespace flashdma_bwd::bench
