// Plots of `bench context`: what each way to deal a prompt takes, and how much each coordinate has to do.
//
// Thread-safety: pure functions.

#pragma once

#include <string>
#include <vector>

namespace shoal::cli {

struct StackedBar {
  std::string name;
  std::vector<double> parts;  // bottom first
};

// Bars of parts on top of each other, one legend entry for each part.
std::string stacked_bars_svg(const std::string& title, const std::string& unit,
                             const std::vector<std::string>& parts, const std::vector<StackedBar>& bars);

}  // namespace shoal::cli
