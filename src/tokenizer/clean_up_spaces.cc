#include "tokenizer/clean_up_spaces.h"

namespace shoal::tokenizer {
namespace {

// The passes are in the order and with the oddities of the reference: each sees the result of the one before.

std::string before_punctuation(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool punctuation = text[i] == '?' || text[i] == '!' || text[i] == '.' || text[i] == ',';
    if (punctuation && i > 0 && text[i - 1] == ' ') out.pop_back();
    out += text[i];
  }
  return out;
}

std::string around_lone_apostrophes(std::string_view text) {
  std::string out;
  bool taken = false;  // the character before went with an apostrophe
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool lone =
        text[i] == '\'' && i > 0 && i + 1 < text.size() && text[i - 1] == ' ' && !taken && text[i + 1] == ' ';
    if (lone) out.pop_back();
    out += text[i];
    taken = lone;
    if (lone) ++i;
  }
  return out;
}

std::string before_contractions(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\'' && i > 0 && text[i - 1] == ' ') {
      const std::string_view rest = text.substr(i + 1);
      if (rest.starts_with('s') || rest.starts_with('m') || rest.starts_with("re") ||
          rest.starts_with("ve")) {
        out.pop_back();
      }
    }
    out += text[i];
  }
  return out;
}

}  // namespace

std::string clean_up_spaces(std::string_view text) {
  return before_contractions(around_lone_apostrophes(before_punctuation(text)));
}

}  // namespace shoal::tokenizer
