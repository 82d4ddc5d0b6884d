#include <fmt/format.h>

#include "cli/inspect_report.h"
#include "tensor/kv_layout.h"

namespace shoal::cli {
namespace {

using formats::ModelMetadata;
using formats::ModelPart;

std::string size_text(std::uint64_t bytes) {
  if (bytes >= std::uint64_t{1} << 30)
    return fmt::format("{:.2f} GiB", static_cast<double>(bytes) / (1U << 30));
  if (bytes >= std::uint64_t{1} << 20)
    return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / (1U << 20));
  return fmt::format("{:.1f} KiB", static_cast<double>(bytes) / 1024.0);
}

std::string rope_text(const formats::RopeSettings& rope) {
  const bool factor =
      rope.scaling == formats::RopeScaling::kLinear || rope.scaling == formats::RopeScaling::kYarn;
  return fmt::format(
      "base {:g}, {} dimensions, {}, scaling {}{}", rope.freq_base, rope.dims,
      rope.style == formats::RopeStyle::kInterleaved ? "neighbours turn together" : "halves turn together",
      scaling_name(rope.scaling), factor ? fmt::format(" by {:g}", rope.factor) : "");
}

std::string extras_text(const ModelMetadata& m) {
  std::string out = m.tied_embeddings ? "tied embeddings" : "output matrix of its own";
  if (m.attention_bias) out += ", biases on Q, K and V";
  if (m.attention_output_bias) out += ", bias after attention";
  if (m.qk_norm) out += ", norms on Q and K";
  if (m.post_norms) out += ", norms behind each block";
  if (m.activation == formats::Activation::kGeluTanh) out += ", GELU";
  if (m.attention_softcap > 0) out += fmt::format(", scores capped at {:g}", m.attention_softcap);
  if (m.final_softcap > 0) out += fmt::format(", logits capped at {:g}", m.final_softcap);
  return out;
}

void print_model(const InspectReport& r) {
  const ModelMetadata& m = *r.model;
  fmt::print("shape        {} layers, {} wide, {} query and {} KV heads of {}, feed-forward {}\n", m.layers,
             m.dim, m.heads, m.kv_heads, m.head_dim, m.ffn_dim);
  fmt::print("             vocabulary {}, context {}, {}\n", m.vocab, m.context, extras_text(m));
  fmt::print("rope         {}\n", rope_text(m.rope));
  if (m.window_rope) fmt::print("             in layers with a window: {}\n", rope_text(*m.window_rope));
  fmt::print("fingerprint  {}\n\n", r.fingerprint.hex());

  fmt::print("{:<14}{:>16}{:>9}{:>14}{:>9}\n", "part", "parameters", "share", "bytes", "share");
  const auto row = [&](std::string_view name, const formats::Weight& w) {
    fmt::print("{:<14}{:>16}{:>7.1f} %{:>14}{:>7.1f} %\n", name, w.parameters,
               100.0 * share(w.parameters, r.summary.total.parameters),
               size_text(static_cast<std::uint64_t>(w.bytes)), 100.0 * share(w.bytes, r.summary.total.bytes));
  };
  for (std::size_t i = 0; i < formats::kModelParts; ++i) {
    const auto part = static_cast<ModelPart>(i);
    if (r.summary.part(part).parameters > 0) row(formats::model_part_name(part), r.summary.part(part));
  }
  row("total", r.summary.total);
  fmt::print("\n");
  for (const auto& [type, weight] : r.summary.by_type) row(type, weight);
}

void print_memory(const InspectReport& r) {
  const auto weights = static_cast<std::uint64_t>(r.summary.total.bytes);
  fmt::print("\nmemory for one sequence of {} tokens, --kv-dtype {}\n", r.context, r.kv_dtype);
  fmt::print("weights      {}, of which a decoded token reads {}\n", size_text(weights),
             size_text(static_cast<std::uint64_t>(r.summary.decode_bytes)));
  for (const KvNeed& need : r.kv) {
    fmt::print("KV           {}: {} pages of {} tokens at {}, {} layers with {}\n", size_text(need.bytes()),
               need.pages, kPageTokens, size_text(need.page_bytes), need.layers,
               need.window == 0 ? "full attention" : fmt::format("a window of {}", need.window));
  }
  fmt::print("together     {}\n", size_text(weights + r.kv_bytes()));
}

void print_generation(const formats::GenerationDefaults& g) {
  std::string out;
  const auto add = [&](std::string_view name, const auto& value) {
    if (value) out += fmt::format("{}{} {}", out.empty() ? "" : ", ", name, *value);
  };
  add("temperature", g.temperature);
  add("top_p", g.top_p);
  add("top_k", g.top_k);
  add("min_p", g.min_p);
  add("repetition penalty", g.repetition_penalty);
  if (!out.empty()) fmt::print("sampling     {}, as its makers recommend\n", out);
}

}  // namespace

void print_text(const InspectReport& r) {
  fmt::print("file         {}, {}, {}{}\n", r.path, r.format, size_text(r.file_bytes),
             r.files > 1 ? fmt::format(" in {} files", r.files) : "");
  fmt::print("model        {}{}\n", r.architecture, r.title.empty() ? "" : fmt::format(" \"{}\"", r.title));
  if (r.tokenizer.model.empty()) {
    fmt::print("tokenizer    none\n");
  } else {
    fmt::print("tokenizer    {}{}, {} tokens, {}\n", r.tokenizer.model,
               r.tokenizer.pre.empty() ? "" : fmt::format(" ({})", r.tokenizer.pre), r.tokenizer.tokens,
               r.tokenizer.chat_template ? "with a chat template" : "without a chat template");
  }
  if (!r.model) {
    fmt::print("weights      none: a file for the tokenizer only\n");
    return;
  }
  print_generation(r.generation);
  print_model(r);
  print_memory(r);
}

}  // namespace shoal::cli
