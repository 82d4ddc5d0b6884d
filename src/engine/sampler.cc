#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace shoal::engine {
namespace {

constexpr float kGreedyBelow = 1e-5F;
// Covers top-p's mass for all but flat distributions; ranked again eight times wider where it does not.
constexpr std::int64_t kFirstCandidates = 256;

}  // namespace

RowLogprobs row_logprobs(const kernels::Context& context, std::span<const float> logits, TokenId id,
                         std::int32_t k) {
  RowLogprobs result;
  if (k < 0) return result;
  const float total = kernels::log_sum_exp(context, logits);
  result.logprob = logits[static_cast<std::size_t>(id)] - total;
  if (k == 0) return result;
  for (const kernels::Candidate& candidate : kernels::top_candidates(logits, k))
    result.top.push_back({candidate.id, candidate.logit - total});
  return result;
}

Sampler::Sampler(SamplingParams params, std::span<const TokenId> prompt, std::span<const TokenId> output)
    : params_(std::move(params)), outputs_(output.size()) {
  if (!params_.needs_history()) return;
  if (params_.repetition_penalty != 1) {
    for (const TokenId id : prompt) seen_[id].in_prompt = true;
  }
  for (const TokenId id : output) ++seen_[id].output;
}

bool Sampler::greedy() const { return params_.temperature < kGreedyBelow; }

void Sampler::set(std::span<float> logits, std::int64_t at, float logit) {
  changed_.emplace_back(at, logits[static_cast<std::size_t>(at)]);
  logits[static_cast<std::size_t>(at)] = logit;
}

// Backwards: an id changed twice gets its first value back last.
void Sampler::restore(std::span<float> logits) {
  for (auto it = changed_.rbegin(); it != changed_.rend(); ++it)
    logits[static_cast<std::size_t>(it->first)] = it->second;
  changed_.clear();
}

void Sampler::adjust(std::span<float> logits, TokenId first) {
  // f(logit) for an id, where it lies in this part.
  const auto change = [&](TokenId id, auto&& f) {
    const std::int64_t at = std::int64_t{id} - first;
    if (at >= 0 && at < static_cast<std::int64_t>(logits.size()))
      set(logits, at, f(logits[static_cast<std::size_t>(at)]));
  };
  for (const auto& [id, seen] : seen_) {
    change(id, [&, &seen = seen](float logit) {
      if (params_.repetition_penalty != 1)
        logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
      if (seen.output > 0)
        logit -= params_.frequency_penalty * static_cast<float>(seen.output) + params_.presence_penalty;
      return logit;
    });
  }
  for (const auto& [id, bias] : params_.logit_bias)
    change(id, [added = bias](float logit) { return logit + added; });
  if (outputs_ < static_cast<std::uint64_t>(params_.min_tokens)) {
    for (const TokenId id : params_.stop_ids)
      change(id, [](float) { return -std::numeric_limits<float>::infinity(); });
  }
}

SampledToken Sampler::sample(const kernels::Context& context, std::span<float> logits) {
  SampledToken token;
  allow_for(static_cast<std::int64_t>(logits.size()));
  adjust(logits, 0);
  token.id = choose(context, logits);
  restore(logits);
  if (params_.logprobs >= 0) {
    RowLogprobs logprobs = row_logprobs(context, logits, token.id, params_.logprobs);
    token.logprob = logprobs.logprob;
    token.top = std::move(logprobs.top);
  }
  advance();
  note(token.id);
  return token;
}

kernels::Candidate Sampler::best(const kernels::Context& context, std::span<const float> logits,
                                 TokenId first) const {
  if (greedy()) return kernels::best_candidate(context, logits, first);
  return kernels::best_draw(context, logits, first, inverse_temperature(), params_.seed, params_.choice,
                            outputs_);
}

std::int64_t Sampler::most_ranked(std::int64_t vocabulary) const {
  return params_.top_k > 0 ? std::min<std::int64_t>(params_.top_k, vocabulary) : vocabulary;
}

std::int64_t Sampler::first_ranked(std::int64_t vocabulary) const {
  const std::int64_t most = most_ranked(vocabulary);
  return most < vocabulary ? most : std::min(kFirstCandidates, most);
}

TokenId Sampler::choose(const kernels::Context& context, std::span<const float> logits) const {
  if (!ranks()) return best(context, logits, 0).id;
  const auto vocabulary = static_cast<std::int64_t>(logits.size());
  const std::int64_t most = most_ranked(vocabulary);
  const float mass = wants_mass() ? kernels::log_sum_exp(context, logits, inverse_temperature()) : 0;
  for (std::int64_t k = first_ranked(vocabulary);; k = next_ranked(k, most)) {
    if (const auto id = choose(kernels::top_candidates(logits, k), k == most, mass)) return *id;
  }
}

std::optional<TokenId> Sampler::choose(std::span<const kernels::Candidate> ranked, bool all,
                                       float mass) const {
  const float inverse = inverse_temperature();
  const float best = ranked.front().logit * inverse;
  const bool cut_min = params_.min_p > 0;
  std::size_t kept = ranked.size();
  if (cut_min) {
    const float floor = best + std::log(params_.min_p);
    while (kept > 1 && ranked[kept - 1].logit * inverse < floor) --kept;
    if (kept == ranked.size() && !all) return std::nullopt;
  }
  if (params_.top_p < 1) {
    // The mass that top_p is a share of: the whole vocabulary's where nothing else cut it; else that of the
    // candidates left.
    double total = 0;
    if (wants_mass()) {
      total = std::exp(static_cast<double>(mass - best));
    } else {
      for (std::size_t i = 0; i < kept; ++i) total += std::exp(ranked[i].logit * inverse - best);
    }
    double covered = 0;
    std::size_t n = 0;
    while (n < kept && covered < static_cast<double>(params_.top_p) * total)
      covered += std::exp(ranked[n++].logit * inverse - best);
    if (n == kept && covered < static_cast<double>(params_.top_p) * total && !all) return std::nullopt;
    kept = std::max<std::size_t>(n, 1);
  }
  return draw(ranked.first(kept), inverse);
}

// Gumbel-max over the ids that are allowed: a draw from their renormalised softmax.
TokenId Sampler::draw(std::span<const kernels::Candidate> candidates, float inverse_temperature) const {
  TokenId chosen = candidates.front().id;
  float best = -std::numeric_limits<float>::infinity();
  for (const kernels::Candidate& candidate : candidates) {
    const float score = candidate.logit * inverse_temperature +
                        kernels::gumbel(params_.seed, params_.choice, outputs_, candidate.id);
    if (score > best || (score == best && candidate.id < chosen)) {
      best = score;
      chosen = candidate.id;
    }
  }
  return chosen;
}

}  // namespace shoal::engine
