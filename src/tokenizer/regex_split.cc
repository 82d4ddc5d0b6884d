#include "tokenizer/regex_split.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <cstdint>

#include "tokenizer/in_quotes.h"

namespace shoal::tokenizer {
namespace {

constexpr std::string_view kWhiteSpace =
    R"(\x09-\x0D\x20\x{85}\x{A0}\x{1680}\x{2000}-\x{200A}\x{2028}\x{2029}\x{202F}\x{205F}\x{3000})";

// One match of a sane pattern backtracks at most a few times per character; 10 million steps are half a
// second.
constexpr std::uint32_t kMatchLimit = 10'000'000;
constexpr std::uint32_t kHeapLimitKib = 64 * 1024;
constexpr std::size_t kJitStackMax = 1024 * 1024;

std::string with_unicode_space(std::string_view pattern) {
  std::string out;
  bool in_class = false;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\' && i + 1 < pattern.size()) {
      const char escaped = pattern[++i];
      if (escaped == 's') {
        out += in_class ? std::string(kWhiteSpace) : "[" + std::string(kWhiteSpace) + "]";
      } else if (escaped == 'S' && !in_class) {
        out += "[^" + std::string(kWhiteSpace) + "]";
      } else {
        out += c;
        out += escaped;
      }
      continue;
    }
    if (c == '[' && !in_class) {
      in_class = true;
      out += c;
      // A ']' that comes first, also after '^', is an ordinary character.
      if (i + 1 < pattern.size() && pattern[i + 1] == '^') out += pattern[++i];
      if (i + 1 < pattern.size() && pattern[i + 1] == ']') out += pattern[++i];
      continue;
    }
    if (c == ']') in_class = false;
    out += c;
  }
  return out;
}

std::string pcre2_message(int code) {
  unsigned char buffer[256];
  if (pcre2_get_error_message(code, buffer, sizeof buffer) < 0) return "error " + std::to_string(code);
  return reinterpret_cast<const char*>(buffer);
}

struct Release {
  void operator()(pcre2_code* p) const { pcre2_code_free(p); }
  void operator()(pcre2_match_data* p) const { pcre2_match_data_free(p); }
  void operator()(pcre2_match_context* p) const { pcre2_match_context_free(p); }
  void operator()(pcre2_jit_stack* p) const { pcre2_jit_stack_free(p); }
};

// What a match needs besides the pattern, kept by each thread: allocating it costs more than most matches.
struct Workspace {
  std::unique_ptr<pcre2_match_data, Release> data{pcre2_match_data_create(1, nullptr)};
  std::unique_ptr<pcre2_match_context, Release> context{pcre2_match_context_create(nullptr)};
  std::unique_ptr<pcre2_jit_stack, Release> stack{pcre2_jit_stack_create(32 * 1024, kJitStackMax, nullptr)};

  Workspace() {
    if (!context) return;
    pcre2_set_match_limit(context.get(), kMatchLimit);
    pcre2_set_heap_limit(context.get(), kHeapLimitKib);
    if (stack) pcre2_jit_stack_assign(context.get(), nullptr, stack.get());
  }
};

Workspace& workspace() {
  thread_local Workspace instance;
  return instance;
}

}  // namespace

struct Regex::Code {
  std::unique_ptr<pcre2_code, Release> code;
  std::string pattern;
};

Expected<Regex> Regex::compile(std::string_view pattern) {
  const std::string source = with_unicode_space(pattern);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->pattern = pattern;
  code->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(source.data()), source.size(),
                                 PCRE2_UTF | PCRE2_UCP | PCRE2_DOLLAR_ENDONLY, &error, &offset, nullptr));
  if (!code->code) {
    return Status(ErrorCode::kInvalidArgument, "pre-tokenizer pattern " + in_quotes(pattern, 400) +
                                                   " does not compile: " + pcre2_message(error));
  }
  // Without JIT (an architecture PCRE2 has none for) the interpreter does the same, slower.
  (void)pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE);
  return Regex(std::move(code));
}

Expected<bool> Regex::find(std::string_view text, std::size_t from, Match& match) const {
  Workspace& space = workspace();
  if (!space.data || !space.context) return Status(ErrorCode::kExhausted, "no memory for pattern matching");
  const auto run = [&](std::uint32_t options) {
    return pcre2_match(code_->code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from,
                       PCRE2_NO_UTF_CHECK | options, space.data.get(), space.context.get());
  };
  int rc = run(0);
  // The interpreter keeps its state on the heap and so gets further than the JIT's stack.
  if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = run(PCRE2_NO_JIT);
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  if (rc < 0) {
    return Status(ErrorCode::kExhausted, "pre-tokenizer pattern " + in_quotes(code_->pattern, 400) +
                                             " failed on a text of " + std::to_string(text.size()) +
                                             " bytes: " + pcre2_message(rc));
  }
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(space.data.get());
  match = {bounds[0], bounds[1]};
  return true;
}

Expected<RegexSplitter> RegexSplitter::compile(const std::vector<std::string>& patterns) {
  RegexSplitter splitter;
  for (const std::string& pattern : patterns) {
    SHOAL_ASSIGN(regex, Regex::compile(pattern));
    splitter.patterns_.push_back(std::move(regex));
  }
  return splitter;
}

Expected<std::vector<std::string_view>> RegexSplitter::split(std::string_view text) const {
  std::vector<std::string_view> pieces;
  if (text.empty()) return pieces;
  pieces.push_back(text);
  for (const Regex& pattern : patterns_) {
    std::vector<std::string_view> next;
    next.reserve(pieces.size() * 2);
    for (const std::string_view piece : pieces) {
      std::size_t done = 0;
      while (done < piece.size()) {
        Regex::Match match{};
        SHOAL_ASSIGN(found, pattern.find(piece, done, match));
        // No pre-tokenizer's pattern matches nothing; one that did would split no further.
        if (!found || match.end == match.begin) break;
        if (match.begin > done) next.push_back(piece.substr(done, match.begin - done));
        next.push_back(piece.substr(match.begin, match.end - match.begin));
        done = match.end;
      }
      if (done < piece.size()) next.push_back(piece.substr(done));
    }
    pieces = std::move(next);
  }
  return pieces;
}

}  // namespace shoal::tokenizer
