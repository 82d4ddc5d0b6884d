#include "wire/json_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <iterator>

namespace shoal::wire {

namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Bytes of the well-formed UTF-8 sequence at `at`, or 0 and in `broken` how many bytes the broken one spans
// (the longest prefix that some character begins with, at least 1: Unicode's recommended practice).
std::size_t sequence_length(std::string_view text, std::size_t at, std::size_t& broken) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(i < text.size() ? text[i] : 0); };
  const unsigned char lead = byte(at);
  std::size_t length = 0;
  unsigned char low = 0x80;
  unsigned char high = 0xbf;
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0) low = 0xa0;   // else too long a form
    if (lead == 0xed) high = 0x9f;  // else a surrogate
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;  // else beyond U+10FFFF
  }
  broken = 1;
  if (length == 0) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    const unsigned char next = byte(at + i);
    if (at + i >= text.size() || next < low || next > high) return 0;
    low = 0x80;
    high = 0xbf;
    broken = i + 1;
  }
  return length;
}

}  // namespace

void append_json_string(std::string& out, std::string_view text) {
  out.push_back('"');
  std::size_t run = 0;  // start of bytes that go out as they are
  std::size_t i = 0;
  const auto flush = [&](std::size_t skip) {
    out.append(text, run, i - run);
    i += skip;
    run = i;
  };
  while (i < text.size()) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c >= 0x80) {
      std::size_t broken = 0;
      if (const std::size_t length = sequence_length(text, i, broken); length > 0) {
        i += length;
      } else {
        flush(broken);
        out += kReplacement;
      }
    } else if (c == '"' || c == '\\') {
      flush(1);
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c < 0x20) {
      flush(1);
      switch (c) {
        case '\n':
          out += "\\n";
          break;
        case '\r':
          out += "\\r";
          break;
        case '\t':
          out += "\\t";
          break;
        default:
          fmt::format_to(std::back_inserter(out), "\\u{:04x}", c);
      }
    } else {
      ++i;
    }
  }
  flush(0);
  out.push_back('"');
}

JsonWriter& JsonWriter::key(std::string_view name) {
  separate();
  out_.push_back('"');
  out_ += name;
  out_ += "\":";
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::key_escaped(std::string_view name) {
  separate();
  append_json_string(out_, name);
  out_.push_back(':');
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::string(std::string_view text) {
  separate();
  append_json_string(out_, text);
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::integer(std::int64_t value) {
  separate();
  fmt::format_to(std::back_inserter(out_), "{}", value);
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::number(double value) {
  if (!std::isfinite(value)) return null();
  separate();
  fmt::format_to(std::back_inserter(out_), "{}", value);
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  comma_ = true;
  return *this;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  out_.push_back(bracket);
  comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::shut(char bracket) {
  out_.push_back(bracket);
  comma_ = true;
  return *this;
}

void JsonWriter::separate() {
  if (comma_) out_.push_back(',');
}

}  // namespace shoal::wire
