#include "wire/rank_messages.h"

#include <fmt/format.h>

#include "wire/bytes.h"

namespace shoal::wire {
namespace {

// Value, or that the bytes are something else.
template <typename T>
Expected<T> whole(const ByteReader& in, T value, const char* name) {
  if (!in.done()) return Status(ErrorCode::kCorrupt, fmt::format("a {} message has other bytes", name));
  return value;
}

void put_strings(ByteWriter& out, const std::vector<std::string>& list) {
  out.put_list(list, [&](const std::string& text) { out.put_string(text); });
}
void get_strings(ByteReader& in, std::vector<std::string>& list) {
  in.get_list(list, 4, [&](std::string& text) { text = in.get_string(); });
}

}  // namespace

std::vector<std::byte> encode(const Join& join) {
  ByteWriter out;
  out.put_string(join.build);
  out.put_string(join.host);
  out.put(join.rank);
  out.put(join.cores);
  out.put(join.pid);
  return out.take();
}

Expected<Join> decode_join(std::span<const std::byte> body) {
  ByteReader in(body);
  Join join;
  join.build = in.get_string();
  join.host = in.get_string();
  in.get(join.rank);
  in.get(join.cores);
  in.get(join.pid);
  return whole(in, std::move(join), "join");
}

std::vector<std::byte> encode(const Assign& assign) {
  ByteWriter out;
  out.put(assign.rank);
  for (const std::int32_t degree :
       {assign.degrees.tp, assign.degrees.pp, assign.degrees.cp, assign.degrees.dp, assign.degrees.ep})
    out.put(degree);
  out.put(assign.epoch.value);
  for (const std::string& text : {assign.model, assign.kv_dtype, assign.activations, assign.weights})
    out.put_string(text);
  out.put(static_cast<std::uint8_t>(assign.strict));
  out.put(assign.threads);
  out.put(assign.max_slots);
  out.put(static_cast<std::uint8_t>(assign.spin));
  out.put_list(assign.stage_layers);
  return out.take();
}

Expected<Assign> decode_assign(std::span<const std::byte> body) {
  ByteReader in(body);
  Assign assign;
  in.get(assign.rank);
  for (std::int32_t* degree :
       {&assign.degrees.tp, &assign.degrees.pp, &assign.degrees.cp, &assign.degrees.dp, &assign.degrees.ep})
    in.get(*degree);
  in.get(assign.epoch.value);
  for (std::string* text : {&assign.model, &assign.kv_dtype, &assign.activations, &assign.weights})
    *text = in.get_string();
  assign.strict = in.get_flag();
  in.get(assign.threads);
  in.get(assign.max_slots);
  assign.spin = in.get_flag();
  in.get_list(assign.stage_layers);
  return whole(in, std::move(assign), "assign");
}

std::vector<std::byte> encode(const Loaded& loaded) {
  ByteWriter out;
  out.put_string(loaded.fingerprint);
  put_strings(out, loaded.kv_ids);
  out.put_string(loaded.isa);
  out.put(loaded.page_bytes);
  out.put(loaded.available);
  out.put(loaded.threads);
  return out.take();
}

Expected<Loaded> decode_loaded(std::span<const std::byte> body) {
  ByteReader in(body);
  Loaded loaded;
  loaded.fingerprint = in.get_string();
  get_strings(in, loaded.kv_ids);
  loaded.isa = in.get_string();
  in.get(loaded.page_bytes);
  in.get(loaded.available);
  in.get(loaded.threads);
  return whole(in, std::move(loaded), "loaded");
}

std::vector<std::byte> encode(const Start& start) {
  ByteWriter out;
  out.put(start.pages);
  out.put(start.lanes);
  out.put_string(start.meeting);
  out.put(start.ring_bytes);
  put_strings(out, start.hosts);
  return out.take();
}

Expected<Start> decode_start(std::span<const std::byte> body) {
  ByteReader in(body);
  Start start;
  in.get(start.pages);
  in.get(start.lanes);
  start.meeting = in.get_string();
  in.get(start.ring_bytes);
  get_strings(in, start.hosts);
  return whole(in, std::move(start), "start");
}

std::vector<std::byte> encode_sentence(std::string_view sentence) {
  ByteWriter out;
  out.put_string(sentence);
  return out.take();
}

Expected<std::string> decode_sentence(std::span<const std::byte> body) {
  ByteReader in(body);
  std::string sentence = in.get_string();
  return whole(in, std::move(sentence), "sentence");
}

}  // namespace shoal::wire
