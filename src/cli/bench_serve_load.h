// Open-loop load: requests leave at times drawn beforehand, whether or not earlier ones have been answered.
//
// Thread-safety: run_load() belongs to one thread; it starts the client's own.
// Ownership: values.
// Invariants: the same seed, rate and count give the same arrival times and synthetic prompts. Latencies
//   count from the time a request was due, not from when it was sent, so a late sender cannot flatter the
//   server.

#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/expected.h"
#include "wire/http_client.h"

namespace shoal::cli {

// What one request asks; body without the fields that the load sets itself (stream, max_tokens, seed).
struct LoadPrompt {
  std::string path;  // "/v1/completions" or "/v1/chat/completions"
  std::string body;  // a JSON object
};

struct LoadPlan {
  std::vector<wire::Url> targets;   // taken in turn
  std::vector<LoadPrompt> prompts;  // taken in turn
  // Instead of `prompts`: the prompt of request i, made when it is sent. A trace's prompts are gigabytes.
  std::function<LoadPrompt(std::size_t i)> make_prompt;
  std::vector<int> output_tokens;  // of each request; empty: max_tokens of all
  bool keep_alive = false;         // connections serve one request after the other
  std::vector<double> arrivals;    // seconds from the start, ascending
  int max_tokens = 64;
  bool ignore_eos = true;
  std::uint64_t seed = 1;  // request i samples with seed + i
  double deadline = 600;   // seconds for one request
  std::string api_key;
  std::shared_ptr<wire::TlsContext> tls;  // of https:// targets; null trusts what this system trusts
  bool show_progress = false;
};

// Times in seconds from the start of the load.
struct LoadRecord {
  double due = 0;
  double sent = 0;
  std::vector<double> tokens;  // one for each event with tokens
  double end = 0;
  int prompt_tokens = 0;
  int cached_tokens = 0;
  int completion_tokens = 0;
  std::string error;  // empty: answered in full
};

// Poisson arrivals: `count` of them, or as many as fall into `duration` seconds where count is 0.
std::vector<double> poisson_arrivals(double rate, int count, double duration, std::uint64_t seed);

// `count` prompts of random token ids, each from least to most tokens long.
std::vector<LoadPrompt> synthetic_prompts(int count, int least, int most, int vocabulary, std::uint64_t seed);

// Lines {"messages"}, {"prompt"} or {"turns"} / {"question"} (their first turn as a chat); a line's other
// fields are left out. The error names the line.
Expected<std::vector<LoadPrompt>> read_prompts(const std::string& file);

std::vector<LoadRecord> run_load(const LoadPlan& plan);

}  // namespace shoal::cli
