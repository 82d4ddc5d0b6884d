// What `shoal inspect` knows about a model, and the two forms in which it says so.
//
// Thread-safety: plain values; the functions write to standard output.
// Ownership: owns all it holds; the file may be closed.
// Invariants: a report without `model` is of a file with a tokenizer only, and has no summary, memory or
// fingerprint.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/fingerprint.h"
#include "formats/generation_config.h"
#include "formats/model_metadata.h"
#include "formats/model_summary.h"

namespace shoal::cli {

struct TokenizerFacts {
  std::string model;  // "gpt2", "llama", "tokenizer.json"; empty where there is none
  std::string pre;
  std::uint64_t tokens = 0;
  bool chat_template = false;
};

// KV of one sequence in one group of layers.
struct KvNeed {
  std::size_t layers = 0;
  std::int64_t window = 0;
  std::int64_t pages = 0;
  std::uint64_t page_bytes = 0;

  std::uint64_t bytes() const { return static_cast<std::uint64_t>(pages) * page_bytes; }
};

struct InspectReport {
  std::string path;
  std::string format;  // "GGUF 3"
  std::uint64_t file_bytes = 0;
  std::size_t files = 1;
  std::size_t tensors = 0;
  std::string architecture;
  std::string title;
  TokenizerFacts tokenizer;
  std::optional<formats::ModelMetadata> model;  // absent in a file with the tokenizer only
  formats::ModelSummary summary;
  formats::Fingerprint fingerprint;
  formats::GenerationDefaults generation;
  std::int64_t context = 0;
  std::string kv_dtype;
  std::vector<KvNeed> kv;

  std::uint64_t kv_bytes() const {
    std::uint64_t sum = 0;
    for (const KvNeed& need : kv) sum += need.bytes();
    return sum;
  }
};

// For people.
void print_text(const InspectReport& report);
// For programs: one JSON object.
void print_json(const InspectReport& report);

// part / total; 0 of nothing.
inline double share(std::int64_t part, std::int64_t total) {
  return total == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(total);
}

// "none", "linear", "yarn" or "llama3".
std::string_view scaling_name(formats::RopeScaling scaling);

}  // namespace shoal::cli
