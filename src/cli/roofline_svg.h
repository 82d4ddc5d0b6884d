// A roofline plot as SVG: operations a second over operations per byte, both in powers of ten, with the
// machine's ceilings as lines and each measured kernel as a dot that names itself when pointed at.
//
// Thread-safety: pure.
// Form: Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", CACM 52(4), 2009.

#pragma once

#include <string>
#include <vector>

#include "kernels/ceilings.h"

namespace shoal::cli {

struct RooflinePoint {
  std::string series;     // dots of one series share a colour and a line of the legend
  std::string label;      // whole sentence
  double intensity = 0;   // operations per byte, above 0
  double tera_per_s = 0;  // achieved, above 0
};

std::string roofline_svg(const kernels::Ceilings& ceilings, const std::vector<RooflinePoint>& points,
                         const std::string& title);

}  // namespace shoal::cli
