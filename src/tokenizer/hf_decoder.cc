#include "tokenizer/hf_decoder.h"

#include <charconv>
#include <optional>
#include <utility>

#include "tokenizer/byte_alphabet.h"
#include "tokenizer/in_quotes.h"

namespace shoal::tokenizer {
namespace {

constexpr int kMaxDepth = 8;

std::optional<char> fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return static_cast<char>(value);
}

std::string byte_level(std::string_view token) {
  auto bytes = decode_byte_level_strict(token);
  return bytes ? std::move(*bytes) : std::string(token);
}

std::string replace(std::string_view text, std::string_view from, std::string_view to) {
  std::string out;
  if (from.empty()) return std::string(text);
  for (std::size_t at; (at = text.find(from)) != std::string_view::npos;
       text.remove_prefix(at + from.size())) {
    out += text.substr(0, at);
    out += to;
  }
  out += text;
  return out;
}

}  // namespace

Expected<HfDecoder> HfDecoder::parse(JsonElement element, std::string_view source) {
  HfDecoder decoder;
  decoder.join_with_spaces_ = false;
  SHOAL_TRY(decoder.add(element, source, 0));
  return decoder;
}

Status HfDecoder::add(JsonElement element, std::string_view source, int depth) {
  const std::string type = json_string(element, "type");
  const bool fused = !steps_.empty() && (steps_.back().fused || steps_.back().kind == Kind::kFuse);
  if (type == "Sequence" && depth < kMaxDepth) {
    simdjson::dom::array parts;
    if (element["decoders"].get(parts)) return hf_corrupt(source, "decoder Sequence has no list of decoders");
    for (const JsonElement part : parts) SHOAL_TRY(add(part, source, depth + 1));
  } else if (type == "ByteLevel") {
    steps_.push_back({Kind::kByteLevel, "", "", 0, fused});
  } else if (type == "ByteFallback") {
    steps_.push_back({Kind::kByteFallback, "", "", 0, fused});
  } else if (type == "Fuse") {
    steps_.push_back({Kind::kFuse, "", "", 0, fused});
  } else if (type == "Replace") {
    JsonElement pattern;
    if (element["pattern"].get(pattern) || !json_has(pattern, "String")) {
      return hf_unsupported(source, "decoder Replace without a pattern that is a string");
    }
    steps_.push_back(
        {Kind::kReplace, json_string(pattern, "String"), json_string(element, "content"), 0, fused});
  } else if (type == "Strip") {
    const std::int64_t start = json_int(element, "start", 0), stop = json_int(element, "stop", 0);
    if (stop != 0 || start < 0) return hf_unsupported(source, "decoder Strip at the end of tokens");
    steps_.push_back(
        {Kind::kStrip, json_string(element, "content"), "", static_cast<std::size_t>(start), fused});
  } else if (type == "Metaspace") {
    const std::string scheme = json_string(element, "prepend_scheme",
                                           json_bool(element, "add_prefix_space", true) ? "always" : "never");
    steps_.push_back({Kind::kMetaspace, json_string(element, "replacement", "\u2581"), " ",
                      scheme == "never" ? std::size_t{0} : std::size_t{1}, fused});
  } else {
    return hf_unsupported(source,
                          "decoder " + in_quotes(type) +
                              " is not supported; known: Sequence, ByteLevel, Replace, ByteFallback, Fuse, "
                              "Strip, Metaspace");
  }
  return {};
}

HfDecoder::State HfDecoder::start(bool continues) const {
  State state;
  state.steps.resize(steps_.size());
  for (std::size_t i = 0; i < steps_.size(); ++i) {
    state.steps[i].done = continues && (steps_[i].kind == Kind::kMetaspace || steps_[i].fused);
  }
  state.first = !continues;
  return state;
}

void HfDecoder::push(State& state, std::string_view token, std::string& out) const {
  if (join_with_spaces_ && !std::exchange(state.first, false)) out += ' ';
  feed(state, 0, std::string(token), out);
}

std::string HfDecoder::strip(const Step& step, StepState& state, std::string token) {
  std::size_t from = 0;
  std::size_t stripped = step.fused ? state.stripped : 0;
  while (stripped < step.count && !step.pattern.empty() &&
         std::string_view(token).substr(from).starts_with(step.pattern)) {
    from += step.pattern.size();
    ++stripped;
  }
  if (step.fused) {
    state.stripped = stripped;
    state.done = state.done || stripped == step.count || from < token.size();
  }
  return token.substr(from);
}

void HfDecoder::feed(State& state, std::size_t step, std::string token, std::string& out) const {
  for (; step < steps_.size(); ++step) {
    const Step& now = steps_[step];
    StepState& own = state.steps[step];
    switch (now.kind) {
      case Kind::kFuse:
        break;
      case Kind::kReplace:
        token = replace(token, now.pattern, now.content);
        break;
      case Kind::kStrip:
        if (!own.done) token = strip(now, own, std::move(token));
        break;
      case Kind::kMetaspace:
        // The mark before the first token was put there by the pre-tokenizer.
        if (now.count > 0 && !own.done && token.starts_with(now.pattern)) token.erase(0, now.pattern.size());
        own.done = true;
        token = replace(token, now.pattern, now.content);
        break;
      case Kind::kByteFallback:
        if (const auto byte = fallback_byte(token)) {
          own.run += *byte;
          return;
        }
        flush_run(state, step, out);
        break;
      case Kind::kByteLevel: {
        std::string whole;
        own.assembler.push(byte_level(token), whole);
        token = std::move(whole);
        break;
      }
    }
  }
  out += token;
}

// A run of byte tokens that is not valid as a whole gives one U+FFFD a byte, as the reference does.
void HfDecoder::flush_run(State& state, std::size_t step, std::string& out) const {
  const std::string run = std::exchange(state.steps[step].run, {});
  if (run.empty()) return;
  std::string text;
  if (is_valid_utf8(run)) {
    text = run;
  } else {
    for (std::size_t i = 0; i < run.size(); ++i) text += kReplacementCharacter;
  }
  feed(state, step + 1, std::move(text), out);
}

void HfDecoder::finish(State& state, std::string& out) const {
  for (std::size_t step = 0; step < steps_.size(); ++step) {
    if (steps_[step].kind == Kind::kByteFallback) flush_run(state, step, out);
    if (steps_[step].kind != Kind::kByteLevel) continue;
    std::string rest;
    state.steps[step].assembler.finish(rest);
    if (!rest.empty()) feed(state, step + 1, std::move(rest), out);
  }
}

std::string HfDecoder::piece(std::string_view token) const {
  std::string text(token);
  for (const Step& step : steps_) {
    switch (step.kind) {
      case Kind::kByteLevel:
        text = byte_level(text);
        break;
      case Kind::kReplace:
      case Kind::kMetaspace:
        text = replace(text, step.pattern, step.content);
        break;
      case Kind::kByteFallback:
        if (const auto byte = fallback_byte(text)) text = std::string(1, *byte);
        break;
      case Kind::kFuse:
      case Kind::kStrip:
        break;
    }
  }
  return text;
}

}  // namespace shoal::tokenizer
