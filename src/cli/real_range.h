// The check of a flag that takes a real number: inside its range, and a number at all.
//
// Thread-safety: pure.
// Why not CLI::Range: it compares, and every comparison with NaN is false, so that "nan" passes.

#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <string>

namespace shoal::cli {

// low and high are included.
inline CLI::Validator real_range(double low, double high) {
  const auto check = [low, high](std::string& text) {
    double value = 0;
    const bool inside =
        CLI::detail::lexical_cast(text, value) && std::isfinite(value) && value >= low && value <= high;
    return inside ? std::string() : fmt::format("'{}' is not a number from {} to {}", text, low, high);
  };
  return CLI::Validator(check, fmt::format("FLOAT in [{} - {}]", low, high));
}

}  // namespace shoal::cli
