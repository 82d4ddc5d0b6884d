#include "tokenizer/utf8.h"

#include <algorithm>

namespace shoal::tokenizer {
namespace {

struct Scan {
  std::size_t length;  // bytes of the character, or of its longest valid start
  bool whole;
  bool broken;  // cannot become a character whatever follows
};

// Bounds of the second byte keep out overlong forms, surrogates and code points past U+10FFFF.
Scan scan_character(std::string_view text) {
  const auto first = static_cast<std::uint8_t>(text[0]);
  if (first < 0x80) return {1, true, false};
  const std::size_t need = utf8_length(text[0]);
  if (need == 1) return {1, false, true};
  std::uint8_t low = 0x80, high = 0xBF;
  if (first == 0xE0) low = 0xA0;
  if (first == 0xED) high = 0x9F;
  if (first == 0xF0) low = 0x90;
  if (first == 0xF4) high = 0x8F;
  for (std::size_t i = 1; i < need; ++i) {
    if (i == text.size()) return {i, false, false};
    const auto byte = static_cast<std::uint8_t>(text[i]);
    if (byte < low || byte > high) return {i, false, true};
    low = 0x80;
    high = 0xBF;
  }
  return {need, true, false};
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const Scan scan = scan_character(text);
    if (!scan.whole) return false;
    text.remove_prefix(scan.length);
  }
  return true;
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  Utf8Assembler assembler;
  assembler.push(text, out);
  assembler.finish(out);
  return out;
}

void append_utf8(char32_t code_point, std::string& out) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    put(0x80 | (code_point & 0x3F));
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  } else {
    put(0xF0 | code_point >> 18);
    put(0x80 | (code_point >> 12 & 0x3F));
    put(0x80 | (code_point >> 6 & 0x3F));
    put(0x80 | (code_point & 0x3F));
  }
}

char32_t next_code_point(std::string_view text, std::size_t& at) {
  const std::size_t length = std::min(utf8_length(text[at]), text.size() - at);
  const auto first = static_cast<std::uint8_t>(text[at]);
  char32_t point = length == 1 ? first : first & (0x7F >> length);
  for (std::size_t i = 1; i < length; ++i)
    point = point << 6 | (static_cast<std::uint8_t>(text[at + i]) & 0x3F);
  at += length;
  return point;
}

void Utf8Assembler::push(std::string_view bytes, std::string& out) {
  std::string joined;
  if (!held_.empty()) {
    joined = std::move(held_);
    joined += bytes;
    bytes = joined;
    held_.clear();
  }
  while (!bytes.empty()) {
    const Scan scan = scan_character(bytes);
    if (scan.whole) {
      out += bytes.substr(0, scan.length);
    } else if (scan.broken) {
      out += kReplacementCharacter;
    } else {
      held_ = bytes;
      return;
    }
    bytes.remove_prefix(scan.length);
  }
}

void Utf8Assembler::finish(std::string& out) {
  if (!held_.empty()) out += kReplacementCharacter;
  held_.clear();
}

}  // namespace shoal::tokenizer
