#include "wire/inner_note.h"

#include <simdjson.h>

#include <array>
#include <utility>

#include "wire/json_writer.h"

namespace shoal::wire {
namespace {

using Kind = InnerNote::Kind;

constexpr std::array kKinds = {std::pair{std::string_view("role"), Kind::kRole},
                               std::pair{std::string_view("finish"), Kind::kFinish},
                               std::pair{std::string_view("usage"), Kind::kUsage}};

// Tokens or bytes: no answer has more, and sums of two of them overflow nothing.
constexpr std::int64_t kMostCount = std::int64_t{1} << 40;

// Takes a number from 0 to kMostCount; false where it is something else.
bool take(std::int64_t& out, simdjson::dom::element value) {
  return value.get_int64().get(out) == simdjson::SUCCESS && out >= 0 && out <= kMostCount;
}

bool take_ids(std::vector<TokenId>& out, simdjson::dom::element value) {
  simdjson::dom::array list;
  if (value.get_array().get(list) != simdjson::SUCCESS) return false;
  for (const simdjson::dom::element each : list) {
    std::int64_t id = 0;
    if (!take(id, each) || id > INT32_MAX) return false;
    out.push_back(static_cast<TokenId>(id));
  }
  return true;
}

bool take_kind(Kind& out, simdjson::dom::element value) {
  std::string_view name;
  if (value.get_string().get(name) != simdjson::SUCCESS) return false;
  for (const auto& [known, kind] : kKinds) {
    if (name != known) continue;
    out = kind;
    return true;
  }
  return false;
}

}  // namespace

void InnerNote::append_to(std::string& out) const {
  out += kNotePrefix;
  JsonWriter json(out);
  json.begin_object();
  for (const auto& [name, known] : kKinds) {
    if (kind == known) json.key("kind").string(name);
  }
  if (kind == Kind::kUsage) {
    json.key("prompt_tokens").integer(prompt_tokens).key("cached_tokens").integer(cached_tokens);
    json.key("completion_tokens").integer(completion_tokens).key("first_token_us").integer(first_token_us);
  } else {
    json.key("choice").integer(choice);
  }
  if (kind == Kind::kTokens) {
    json.key("index").integer(index).key("token_ids").begin_array();
    for (const TokenId id : token_ids) json.integer(id);
    json.end_array().key("byte_offset").integer(byte_offset).key("bytes").integer(bytes);
  }
  json.end_object();
  out.push_back('\n');
}

std::optional<InnerNote> InnerNote::parse(std::string_view line) {
  if (!line.starts_with(kNotePrefix)) return std::nullopt;
  line.remove_prefix(kNotePrefix.size());
  // One for the thread: a parser holds buffers worth keeping, and notes come with every token.
  thread_local simdjson::dom::parser parser;
  simdjson::dom::object object;
  if (parser.parse(line.data(), line.size()).get_object().get(object) != simdjson::SUCCESS)
    return std::nullopt;
  InnerNote note;
  std::int64_t choice = 0;
  bool good = true;
  for (const auto [key, value] : object) {
    if (key == "choice") {
      good &= take(choice, value) && choice < INT32_MAX;
    } else if (key == "index") {
      good &= take(note.index, value);
    } else if (key == "token_ids") {
      good &= take_ids(note.token_ids, value);
    } else if (key == "byte_offset") {
      good &= take(note.byte_offset, value);
    } else if (key == "bytes") {
      good &= take(note.bytes, value);
    } else if (key == "kind") {
      good &= take_kind(note.kind, value);
    } else if (key == "prompt_tokens") {
      good &= take(note.prompt_tokens, value);
    } else if (key == "cached_tokens") {
      good &= take(note.cached_tokens, value);
    } else if (key == "completion_tokens") {
      good &= take(note.completion_tokens, value);
    } else if (key == "first_token_us") {
      good &= take(note.first_token_us, value);
    }
  }
  if (!good) return std::nullopt;
  note.choice = static_cast<std::int32_t>(choice);
  return note;
}

}  // namespace shoal::wire
