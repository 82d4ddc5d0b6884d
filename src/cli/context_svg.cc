#include "cli/context_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <numeric>

namespace shoal::cli {
namespace {

constexpr double kLeft = 60;
constexpr double kTop = 50;
constexpr double kHeight = 300;
constexpr double kBar = 60;
constexpr double kGap = 30;
constexpr double kBottom = 50;
constexpr double kLegend = 170;
// Okabe and Ito's colours, told apart by colour-blind readers too.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#c0c0c0", "#009e73"};

double height_of(const StackedBar& bar) { return std::accumulate(bar.parts.begin(), bar.parts.end(), 0.0); }

}  // namespace

std::string stacked_bars_svg(const std::string& title, const std::string& unit,
                             const std::vector<std::string>& parts, const std::vector<StackedBar>& bars) {
  double most = 0;
  for (const StackedBar& bar : bars) most = std::max(most, height_of(bar));
  if (most <= 0) most = 1;
  const double width = kLeft + static_cast<double>(bars.size()) * (kBar + kGap) + kLegend;
  const double base = kTop + kHeight;
  std::string out;
  const auto put = [&](fmt::string_view form, const auto&... values) {
    fmt::vformat_to(std::back_inserter(out), form, fmt::make_format_args(values...));
    out += '\n';
  };
  put(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}" font-family="sans-serif" font-size="12">)",
      width, base + kBottom);
  put(R"(<rect width="{:.0f}" height="{:.0f}" fill="white"/>)", width, base + kBottom);
  put(R"(<text x="{:.0f}" y="24" font-size="15">{}</text>)", kLeft, title);
  put(R"(<text x="{:.0f}" y="42">{}</text>)", kLeft, unit);
  put(R"(<line x1="{0:.0f}" y1="{1:.0f}" x2="{2:.0f}" y2="{1:.0f}" stroke="black"/>)", kLeft, base,
      width - kLegend);
  for (std::size_t i = 0; i < bars.size(); ++i) {
    const double x = kLeft + kGap / 2 + static_cast<double>(i) * (kBar + kGap);
    double y = base;
    for (std::size_t part = 0; part < bars[i].parts.size(); ++part) {
      const double height = bars[i].parts[part] / most * (kHeight - 20);
      y -= height;
      put(R"(<rect x="{:.1f}" y="{:.1f}" width="{:.0f}" height="{:.1f}" fill="{}"/>)", x, y, kBar, height,
          kColours[part % std::size(kColours)]);
    }
    put(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{:.3g}</text>)", x + kBar / 2, y - 5,
        height_of(bars[i]));
    put(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{}</text>)", x + kBar / 2, base + 18,
        bars[i].name);
  }
  for (std::size_t part = 0; part < parts.size(); ++part) {
    const double y = kTop + 20 * static_cast<double>(part);
    put(R"(<rect x="{:.0f}" y="{:.0f}" width="12" height="12" fill="{}"/>)", width - kLegend + 10, y,
        kColours[part % std::size(kColours)]);
    put(R"(<text x="{:.0f}" y="{:.0f}">{}</text>)", width - kLegend + 28, y + 11, parts[part]);
  }
  out += "</svg>\n";
  return out;
}

}  // namespace shoal::cli
