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

void Sampler::set(std::span<float> logits, TokenId id, float logit) {
  changed_.emplace_back(id, logits[static_cast<std::size_t>(id)]);
  logits[static_cast<std::size_t>(id)] = logit;
}

// Backwards: an id changed twice gets its first value back last.
void Sampler::restore(std::span<float> logits) {
  for (auto it = changed_.rbegin(); it != changed_.rend(); ++it)
    logits[static_cast<std::size_t>(it->first)] = it->second;
  changed_.clear();
}

void Sampler::adjust(std::span<float> logits) {
  for (const auto& [id, seen] : seen_) {
    float logit = logits[static_cast<std::size_t>(id)];
    if (params_.repetition_penalty != 1)
      logit = logit > 0 ? logit / params_.repetition_penalty : logit * params_.repetition_penalty;
    if (seen.output > 0)
      logit -= params_.frequency_penalty * static_cast<float>(seen.output) + params_.presence_penalty;
    set(logits, id, logit);
  }
  for (const auto& [id, bias] : params_.logit_bias)
    set(logits, id, logits[static_cast<std::size_t>(id)] + bias);
  if (outputs_ < static_cast<std::uint64_t>(params_.min_tokens)) {
    for (const TokenId id : params_.stop_ids) set(logits, id, -std::numeric_limits<float>::infinity());
  }
}

SampledToken Sampler::sample(const kernels::Context& context, std::span<float> logits) {
  SampledToken token;
  adjust(logits);
  token.id = choose(context, logits);
  restore(logits);
  if (params_.logprobs >= 0) {
    RowLogprobs logprobs = row_logprobs(context, logits, token.id, params_.logprobs);
    token.logprob = logprobs.logprob;
    token.top = std::move(logprobs.top);
  }
  ++outputs_;
  if (params_.needs_history()) ++seen_[token.id].output;
  return token;
}

TokenId Sampler::choose(const kernels::Context& context, std::span<const float> logits) const {
  if (params_.temperature < kGreedyBelow) return kernels::arg_max(context, logits);
  const float inverse = 1 / params_.temperature;
  const auto vocabulary = static_cast<std::int64_t>(logits.size());
  const bool cut_k = params_.top_k > 0 && params_.top_k < vocabulary;
  const bool cut_p = params_.top_p < 1;
  const bool cut_min = params_.min_p > 0;
  if (!cut_k && !cut_p && !cut_min)
    return kernels::gumbel_max(context, logits, inverse, params_.seed, params_.choice, outputs_);

  const std::int64_t most = cut_k ? params_.top_k : vocabulary;
  // The mass that top_p is a share of: the whole vocabulary's where nothing else cut it, folded by segments;
  // else that of the candidates left.
  const float whole = !cut_k && !cut_min ? kernels::log_sum_exp(context, logits, inverse) : 0;
  for (std::int64_t k = std::min(cut_k ? most : kFirstCandidates, most);; k = std::min(k * 8, most)) {
    std::vector<kernels::Candidate> ranked = kernels::top_candidates(logits, k);
    const bool all = k == most;
    const float best = ranked.front().logit * inverse;
    std::size_t kept = ranked.size();
    if (cut_min) {
      const float floor = best + std::log(params_.min_p);
      while (kept > 1 && ranked[kept - 1].logit * inverse < floor) --kept;
      if (kept == ranked.size() && !all) continue;
    }
    if (cut_p) {
      double total = 0;
      if (cut_k || cut_min) {
        for (std::size_t i = 0; i < kept; ++i) total += std::exp(ranked[i].logit * inverse - best);
      } else {
        total = std::exp(static_cast<double>(whole - best));
      }
      double mass = 0;
      std::size_t n = 0;
      while (n < kept && mass < static_cast<double>(params_.top_p) * total)
        mass += std::exp(ranked[n++].logit * inverse - best);
      if (n == kept && mass < static_cast<double>(params_.top_p) * total && !all) continue;
      kept = std::max<std::size_t>(n, 1);
    }
    return draw(std::span(ranked).first(kept), inverse);
  }
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
