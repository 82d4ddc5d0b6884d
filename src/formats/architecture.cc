#include "formats/architecture.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <vector>

namespace shoal::formats {
namespace {

constexpr Architecture gemma(std::string_view name) {
  Architecture a;
  a.name = name;
  a.attention_bias = Presence::kNever;
  a.activation = Activation::kGeluTanh;
  a.post_norms = true;
  a.scaled_embeddings = true;
  return a;
}

constexpr Architecture gemma2() {
  Architecture a = gemma("gemma2");
  a.full_period = 2;
  a.wide_scale_layers = 46;  // Gemma 2 27B
  a.attention_softcap = 50;
  a.final_softcap = 30;
  return a;
}

constexpr Architecture gemma3() {
  Architecture a = gemma("gemma3");
  a.qk_norm = Presence::kAlways;
  a.full_period = 6;
  a.window_rope_base = 10000;
  a.wide_scale_layers = 62;  // Gemma 3 27B
  return a;
}

constexpr std::array kArchitectures = {
    // Mistral's and SmolLM's files call themselves llama.
    Architecture{.name = "llama", .rope = RopeStyle::kInterleaved},
    Architecture{.name = "mistral", .rope = RopeStyle::kInterleaved},
    Architecture{.name = "qwen2", .attention_bias = Presence::kAlways},
    Architecture{.name = "qwen3", .qk_norm = Presence::kAlways},
    gemma2(),
    gemma3(),
};

}  // namespace

const Architecture* find_architecture(std::string_view name) {
  const auto* found = std::find_if(kArchitectures.begin(), kArchitectures.end(),
                                   [&](const Architecture& a) { return a.name == name; });
  return found == kArchitectures.end() ? nullptr : found;
}

std::string known_architectures() {
  std::vector<std::string_view> names;
  names.reserve(kArchitectures.size());
  for (const Architecture& a : kArchitectures) names.push_back(a.name);
  return fmt::format("{}", fmt::join(names, ", "));
}

}  // namespace shoal::formats
