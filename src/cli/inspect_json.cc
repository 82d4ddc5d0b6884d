#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "cli/inspect_report.h"
#include "tensor/kv_layout.h"

namespace shoal::cli {
namespace {

using formats::ModelMetadata;
using formats::ModelPart;
using nlohmann::ordered_json;

ordered_json weight_json(const formats::Weight& weight, const formats::Weight& total) {
  return {{"parameters", weight.parameters},
          {"share", share(weight.parameters, total.parameters)},
          {"bytes", weight.bytes}};
}

ordered_json model_json(const ModelMetadata& m) {
  return {{"layers", m.layers},
          {"dim", m.dim},
          {"heads", m.heads},
          {"kv_heads", m.kv_heads},
          {"head_dim", m.head_dim},
          {"ffn_dim", m.ffn_dim},
          {"vocab", m.vocab},
          {"context", m.context},
          {"rms_eps", m.rms_eps},
          {"rope",
           {{"base", m.rope.freq_base},
            {"dims", m.rope.dims},
            {"style", m.rope.style == formats::RopeStyle::kInterleaved ? "interleaved" : "half-split"},
            {"scaling", scaling_name(m.rope.scaling)},
            {"factor", m.rope.factor},
            {"window_base", m.window_rope ? m.window_rope->freq_base : m.rope.freq_base}}},
          {"windows", m.windows},
          {"tied_embeddings", m.tied_embeddings},
          {"attention_bias", m.attention_bias},
          {"attention_output_bias", m.attention_output_bias},
          {"qk_norm", m.qk_norm},
          {"post_norms", m.post_norms},
          {"activation", m.activation == formats::Activation::kSilu ? "silu" : "gelu_tanh"},
          {"attention_scale", m.attention_scale},
          {"attention_softcap", m.attention_softcap},
          {"final_softcap", m.final_softcap},
          {"embedding_scale", m.embedding_scale}};
}

ordered_json memory_json(const InspectReport& r) {
  ordered_json groups = ordered_json::array();
  for (const KvNeed& need : r.kv) {
    groups.push_back({{"layers", need.layers},
                      {"window", need.window},
                      {"pages", need.pages},
                      {"page_tokens", kPageTokens},
                      {"page_bytes", need.page_bytes},
                      {"bytes", need.bytes()}});
  }
  const auto weights = static_cast<std::uint64_t>(r.summary.total.bytes);
  return {{"context", r.context},
          {"kv_dtype", r.kv_dtype},
          {"weight_bytes", weights},
          {"decode_bytes_per_token", r.summary.decode_bytes},
          {"kv_bytes", r.kv_bytes()},
          {"kv_groups", groups},
          {"total_bytes", weights + r.kv_bytes()}};
}

}  // namespace

std::string_view scaling_name(formats::RopeScaling scaling) {
  switch (scaling) {
    case formats::RopeScaling::kNone:
      return "none";
    case formats::RopeScaling::kLinear:
      return "linear";
    case formats::RopeScaling::kYarn:
      return "yarn";
    case formats::RopeScaling::kLlama3:
      return "llama3";
  }
  return "none";
}

void print_json(const InspectReport& r) {
  ordered_json out{{"file", r.path},
                   {"format", r.format},
                   {"file_bytes", r.file_bytes},
                   {"files", r.files},
                   {"architecture", r.architecture},
                   {"name", r.title},
                   {"tokenizer",
                    {{"model", r.tokenizer.model},
                     {"pre", r.tokenizer.pre},
                     {"tokens", r.tokenizer.tokens},
                     {"chat_template", r.tokenizer.chat_template}}},
                   {"tensors", r.tensors}};
  if (r.model) {
    out["model"] = model_json(*r.model);
    out["fingerprint"] = r.fingerprint.hex();
    ordered_json parts;
    for (std::size_t i = 0; i < formats::kModelParts; ++i) {
      const auto part = static_cast<ModelPart>(i);
      parts[std::string(formats::model_part_name(part))] = weight_json(r.summary.part(part), r.summary.total);
    }
    out["parts"] = parts;
    ordered_json types;
    for (const auto& [type, weight] : r.summary.by_type) types[type] = weight_json(weight, r.summary.total);
    out["types"] = types;
    out["total"] = weight_json(r.summary.total, r.summary.total);
    out["memory"] = memory_json(r);
  }
  // File names need not be UTF-8.
  fmt::print("{}\n", out.dump(2, ' ', false, ordered_json::error_handler_t::replace));
}

}  // namespace shoal::cli
