// Traces of requests as others have published them: when each came, how long its prompt and its answer were.
//
// Thread-safety: pure functions.
// Ownership: values.
// Errors: kInvalidArgument naming the file and the line.
// Invariants: requests come in the order of their times, the first at 0; the same file and seed give the same
//   requests and prompts.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/expected.h"

namespace shoal::cli {

struct TraceRequest {
  double at = 0;  // seconds
  std::int64_t input_tokens = 1;
  std::int64_t output_tokens = 1;
  // Mooncake: what names each block of 512 tokens of the prompt with all before it; else empty.
  std::vector<std::int64_t> blocks;
};

inline constexpr std::int64_t kTraceBlockTokens = 512;

// Told apart by their first line: Mooncake's JSON lines (timestamp, input_length, output_length, hash_ids),
// whose times come in steps of 3 s and are spread inside each by the seed; Azure's CSV (TIMESTAMP,
// ContextTokens, GeneratedTokens); samples of ServeGen's pools as CSV (arrived_at, input_tokens,
// output_tokens). most: requests to read; 0: all.
Expected<std::vector<TraceRequest>> read_trace(const std::string& file, std::size_t most, std::uint64_t seed);

// Token ids of the request's prompt: each block's are drawn from its name, what has none from the seed.
// scale: of all lengths, blocks' too.
std::vector<std::int32_t> trace_prompt(const TraceRequest& request, double scale, int vocabulary,
                                       std::uint64_t seed);
// A length under that scale, at least 1.
std::int64_t scaled(std::int64_t tokens, double scale);

}  // namespace shoal::cli
