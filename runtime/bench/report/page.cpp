// The report's page. See page.hpp.
#include "report/page.hpp"

#include "report/chart.hpp"
#include "report/html.hpp"
#include "report/page_style.hpp"
#include "report/sections.hpp"

namespace flashdma_bwd::bench {
namespace {

std::string title_of(const std::vector<Analysis>& results, const std::vector<CaptureAnalysis>& captures) {
  std::string gpus;
  for (const Analysis& analysis : results) gpus += (gpus.empty() ? "" : ", ") + analysis.gpu;
  if (gpus.empty())
    for (const CaptureAnalysis& capture : captures)
      if (gpus.find(capture.device.name) == std::string::npos) gpus += (gpus.empty() ? "" : ", ") + capture.device.name;
  return "flashdma_bwd on " + gpus;
}

std::string navigation(const std::vector<Section>& sections) {
  std::string text = "<nav aria-label=\"Sections\"><ul>\n";
  for (const Section& section : sections)
    text += "<li><a href=\"#" + section.id + "\">" + escaped(section.heading) + "</a></li>\n";
  return text + "</ul></nav>\n";
}

std::string section_element(const Section& section) {
  return "<section id=\"" + section.id + "\" aria-labelledby=\"" + section.id + "-heading\">\n<h2 id=\"" + section.id +
         "-heading\">" + escaped(section.heading) + "</h2>\n" + section.html + "</section>\n";
}

}  // namespace

std::string report_page(const std::vector<Analysis>& results, const std::vector<CaptureAnalysis>& captures) {
  std::vector<Section> sections;
  for (std::size_t i = 0; i < results.size(); ++i) add_result_sections(results[i], i, results.size() > 1, sections);
  for (std::size_t i = 0; i < captures.size(); ++i) add_capture_sections(captures[i], i, sections);
  const std::string title = escaped(title_of(results, captures));
  std::string text =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "script-src 'unsafe-inline'\">\n<meta name=\"color-scheme\" content=\"light dark\">\n";
  text += "<title>" + title + "</title>\n<style>\n" + std::string(kPageStyle) + chart_style() +
          "</style>\n</head>\n<body>\n<header><h1>" + title + "</h1>\n" + navigation(sections) + "</header>\n<main>\n";
  for (const Section& section : sections) text += section_element(section);
  return text + "</main>\n<script>\n" + std::string(kSortScript) + "</script>\n</body>\n</html>\n";
}

}  // namespace flashdma_bwd::bench
