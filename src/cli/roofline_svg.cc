#include "cli/roofline_svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <map>

namespace shoal::cli {

namespace {

constexpr double kLeft = 70;
constexpr double kTop = 50;
constexpr double kWidth = 760;
constexpr double kHeight = 420;
constexpr double kLegend = 190;
constexpr double kBottom = 60;
// Okabe and Ito's colours, told apart by colour-blind readers too.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#e69f00", "#56b4e9", "#7f7f7f", "#000000"};

// Powers of ten around all values.
struct Axis {
  double low = 0;
  double high = 1;
  double share(double value) const { return (std::log10(value) - low) / (high - low); }
};

Axis axis_of(double least, double most) {
  return {std::floor(std::log10(least)), std::ceil(std::log10(most) + 1e-9)};
}

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else {
      out += c;
    }
  }
  return out;
}

class Plot {
 public:
  Plot(Axis x, Axis y, const std::string& title) : x_(x), y_(y) {
    const double width = kLeft + kWidth + kLegend;
    const double height = kTop + kHeight + kBottom;
    put(R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0:.0f} {1:.0f}" width="{0:.0f}" height="{1:.0f}")"
        R"( font-family="sans-serif" font-size="12">)",
        width, height);
    put(R"(<rect width="{:.0f}" height="{:.0f}" fill="white"/>)", width, height);
    put(R"(<text x="{:.0f}" y="24" font-size="15">{}</text>)", kLeft, escaped(title));
    grid();
  }

  double x(double value) const { return kLeft + kWidth * x_.share(value); }
  double y(double value) const { return kTop + kHeight * (1 - y_.share(value)); }

  // From the memory slope to the right edge at `tera`, and the slope up to there.
  void ceiling(const kernels::Ceiling& ceiling, double gb_per_s) {
    const double corner = std::max(ceiling.together * 1e3 / gb_per_s, std::pow(10, x_.low));
    put(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="#555" stroke-width="1.5"/>)",
        x(corner), y(ceiling.together), kLeft + kWidth, y(ceiling.together));
    put(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end" fill="#333">{} {:.2f} T/s</text>)",
        kLeft + kWidth - 4, y(ceiling.together) - 4, escaped(ceiling.name), ceiling.together);
  }
  void slope(double gb_per_s, double most_tera) {
    const double first = std::pow(10, x_.low);
    const double from = std::max(first, std::pow(10, y_.low) * 1e3 / gb_per_s);
    const double to = most_tera * 1e3 / gb_per_s;
    put(R"(<line x1="{:.1f}" y1="{:.1f}" x2="{:.1f}" y2="{:.1f}" stroke="#555" stroke-width="1.5"/>)",
        x(from), y(from * gb_per_s / 1e3), x(to), y(to * gb_per_s / 1e3));
    const double middle = std::sqrt(from * to);
    put(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end" fill="#333">memory {:.1f} GB/s</text>)",
        x(middle) - 6, y(middle * gb_per_s / 1e3), gb_per_s);
  }
  void dot(const RooflinePoint& point, const char* colour) {
    put(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4.5" fill="{}" fill-opacity="0.75"><title>{}</title></circle>)",
        x(point.intensity), y(point.tera_per_s), colour, escaped(point.label));
  }
  void legend(std::size_t line, const std::string& name, const char* colour) {
    const double at = kTop + 10 + 20 * static_cast<double>(line);
    put(R"(<circle cx="{:.1f}" cy="{:.1f}" r="4.5" fill="{}"/>)", kLeft + kWidth + 20, at, colour);
    put(R"(<text x="{:.1f}" y="{:.1f}">{}</text>)", kLeft + kWidth + 32, at + 4, escaped(name));
  }
  std::string finish() {
    put("</svg>");
    return std::move(out_);
  }

 private:
  template <typename... Args>
  void put(fmt::format_string<Args...> form, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), form, std::forward<Args>(args)...);
    out_ += '\n';
  }

  void grid() {
    for (double power = x_.low; power <= x_.high; ++power) {
      const double at = x(std::pow(10, power));
      put(R"(<line x1="{0:.1f}" y1="{1:.1f}" x2="{0:.1f}" y2="{2:.1f}" stroke="#e4e4e4"/>)", at, kTop,
          kTop + kHeight);
      put(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">{:g}</text>)", at, kTop + kHeight + 18,
          std::pow(10, power));
    }
    for (double power = y_.low; power <= y_.high; ++power) {
      const double at = y(std::pow(10, power));
      put(R"(<line x1="{0:.1f}" y1="{2:.1f}" x2="{1:.1f}" y2="{2:.1f}" stroke="#e4e4e4"/>)", kLeft,
          kLeft + kWidth, at);
      put(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="end">{:g}</text>)", kLeft - 8, at + 4,
          std::pow(10, power));
    }
    put(R"(<text x="{:.1f}" y="{:.1f}" text-anchor="middle">operations per byte</text>)", kLeft + kWidth / 2,
        kTop + kHeight + 42);
    put(R"svg(<text transform="translate(18,{:.1f}) rotate(-90)" text-anchor="middle">TFLOP/s</text>)svg",
        kTop + kHeight / 2);
  }

  Axis x_;
  Axis y_;
  std::string out_;
};

}  // namespace

std::string roofline_svg(const kernels::Ceilings& ceilings, const std::vector<RooflinePoint>& points,
                         const std::string& title) {
  double fastest = 0;
  for (const kernels::Ceiling& ceiling : ceilings.compute) fastest = std::max(fastest, ceiling.together);
  double least_x = 1;
  double most_x = 100;
  double least_y = fastest;
  for (const RooflinePoint& point : points) {
    least_x = std::min(least_x, point.intensity);
    most_x = std::max(most_x, point.intensity);
    least_y = std::min(least_y, point.tera_per_s);
  }
  Plot plot(axis_of(least_x, std::max(most_x, fastest * 1e3 / ceilings.read.together)),
            axis_of(least_y, fastest), title);
  plot.slope(ceilings.read.together, fastest);
  for (const kernels::Ceiling& ceiling : ceilings.compute) plot.ceiling(ceiling, ceilings.read.together);
  std::map<std::string, std::size_t> series;
  for (const RooflinePoint& point : points) series.emplace(point.series, 0);
  std::size_t line = 0;
  for (auto& [name, index] : series) {
    index = line++;
    plot.legend(index, name, kColours[index % std::size(kColours)]);
  }
  for (const RooflinePoint& point : points)
    plot.dot(point, kColours[series[point.series] % std::size(kColours)]);
  return plot.finish();
}

}  // namespace shoal::cli
