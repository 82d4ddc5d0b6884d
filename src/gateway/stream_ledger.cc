#include "gateway/stream_ledger.h"

#include <algorithm>

#include "wire/json_writer.h"

namespace shoal::gateway {

using wire::InnerNote;

StreamLedger::Verdict StreamLedger::judge(const InnerNote& note) {
  if (note.kind == InnerNote::Kind::kUsage) {
    if (usage_) return Verdict::kDrop;
    if (!finished()) return Verdict::kContradicts;
    usage_ = true;
    return Verdict::kForward;
  }
  if (static_cast<std::size_t>(note.choice) >= choices_.size()) return Verdict::kContradicts;
  Choice& choice = choices_[static_cast<std::size_t>(note.choice)];
  const auto once = [&](bool& flag) {
    if (flag) return Verdict::kDrop;
    flag = begun_ = true;
    return Verdict::kForward;
  };
  switch (note.kind) {
    case InnerNote::Kind::kRole:
      return once(choice.role);
    case InnerNote::Kind::kFinish:
      return once(choice.finished);
    default:
      return judge_tokens(choice, note);
  }
}

StreamLedger::Verdict StreamLedger::judge_tokens(Choice& choice, const InnerNote& note) {
  const auto known = static_cast<std::int64_t>(choice.ids.size());
  const auto given = static_cast<std::int64_t>(note.token_ids.size());
  if (note.index > known || note.byte_offset > choice.bytes) return Verdict::kContradicts;
  for (std::int64_t i = note.index; i < std::min(known, note.index + given); ++i) {
    if (choice.ids[static_cast<std::size_t>(i)] != note.token_ids[static_cast<std::size_t>(i - note.index)])
      return Verdict::kContradicts;
  }
  const bool new_ids = note.index + given > known;
  const bool new_text = note.byte_offset + note.bytes > choice.bytes;
  if (!new_ids && !new_text) return Verdict::kDrop;
  // One event is one piece of JSON: what is partly known cannot be forwarded in part.
  const bool whole =
      (given == 0 || note.index == known) && (note.bytes == 0 || note.byte_offset == choice.bytes);
  if (!whole || choice.finished) return Verdict::kContradicts;
  choice.ids.insert(choice.ids.end(), note.token_ids.begin(), note.token_ids.end());
  choice.bytes += note.bytes;
  begun_ = true;
  return Verdict::kForward;
}

bool StreamLedger::finished() const {
  return std::ranges::all_of(choices_, [](const Choice& choice) { return choice.finished; });
}

std::int64_t StreamLedger::tokens() const {
  std::int64_t tokens = 0;
  for (const Choice& choice : choices_) tokens += static_cast<std::int64_t>(choice.ids.size());
  return tokens;
}

std::string StreamLedger::resume_field() const {
  std::string text = "\"shoal_resume\":";
  wire::JsonWriter out(text);
  out.begin_array();
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    out.begin_object().key("choice").integer(static_cast<std::int64_t>(i)).key("output_ids").begin_array();
    for (const TokenId id : choices_[i].ids) out.integer(id);
    out.end_array().key("emitted_bytes").integer(choices_[i].bytes);
    out.key("finished").boolean(choices_[i].finished).end_object();
  }
  out.end_array();
  return text;
}

}  // namespace shoal::gateway
