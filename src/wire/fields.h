// A message's fields, described once for writing and reading: a description is a function of (io, message)
// that names the fields in the order of docs/wire.md.
//
// Thread-safety: pure functions.
// Errors: decoded() fails with kCorrupt where the bytes are not exactly the fields (W2).

#pragma once

#include <concepts>
#include <string>
#include <utility>
#include <vector>

#include "core/expected.h"
#include "core/ids.h"
#include "wire/bytes.h"

namespace shoal::wire {

template <typename T>
concept Number = std::is_arithmetic_v<T>;

template <Number T>
void field(ByteWriter& out, const T& value) {
  out.put(value);
}
template <Number T>
void field(ByteReader& in, T& value) {
  if constexpr (std::same_as<T, bool>) {
    value = in.get_flag();
  } else {
    in.get(value);
  }
}

template <typename Tag, typename Integer>
void field(ByteWriter& out, const Id<Tag, Integer>& id) {
  out.put(id.value);
}
template <typename Tag, typename Integer>
void field(ByteReader& in, Id<Tag, Integer>& id) {
  in.get(id.value);
}

inline void field(ByteWriter& out, const std::string& text) { out.put_string(text); }
inline void field(ByteReader& in, std::string& text) { text = in.get_string(); }

template <Number T>
void field(ByteWriter& out, const std::vector<T>& list) {
  out.put_list(list);
}
template <Number T>
void field(ByteReader& in, std::vector<T>& list) {
  in.get_list(list);
}

template <typename Io, typename... Values>
void fields(Io& io, Values&&... values) {
  (field(io, values), ...);
}

// A list of whatever `element` describes, each of at least least_bytes: a count that the rest cannot hold is
// found before any memory is taken for it.
template <typename T, typename F>
void list_of(ByteWriter& out, const std::vector<T>& list, std::size_t /*least_bytes*/, F&& element) {
  out.put_list(list, element);
}
template <typename T, typename F>
void list_of(ByteReader& in, std::vector<T>& list, std::size_t least_bytes, F&& element) {
  in.get_list(list, least_bytes, element);
}
template <typename Io, typename Strings>
void strings(Io& io, Strings& list) {
  list_of(io, list, 4, [&](auto& text) { field(io, text); });
}

template <typename Message, typename Description>
std::vector<std::byte> encoded(const Message& message, const Description& describe) {
  ByteWriter out;
  describe(out, message);
  return out.take();
}

// sentence: the error where the bytes are something else.
template <typename Message, typename Description>
Expected<Message> decoded(std::span<const std::byte> bytes, const Description& describe,
                          std::string sentence) {
  ByteReader in(bytes);
  Message message;
  describe(in, message);
  if (!in.done()) return Status(ErrorCode::kCorrupt, std::move(sentence));
  return message;
}

}  // namespace shoal::wire
