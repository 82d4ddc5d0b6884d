#include "engine/shard_sampling.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

namespace shoal::engine {
namespace {

using kernels::Candidate;
using kernels::SegmentMass;

constexpr std::size_t kCandidateBytes = sizeof(TokenId) + sizeof(float);
constexpr std::size_t kMassBytes = sizeof(float) + sizeof(double);

template <typename T>
void put(std::byte*& out, T value) {
  std::memcpy(out, &value, sizeof value);
  out += sizeof value;
}
template <typename T>
T take(const std::byte*& in) {
  T value;
  std::memcpy(&value, in, sizeof value);
  in += sizeof value;
  return value;
}

void put_masses(const kernels::Context& context, std::span<const float> logits, float inverse_temperature,
                std::byte*& out) {
  std::vector<SegmentMass> masses(
      static_cast<std::size_t>(kernels::vocabulary_segments(static_cast<std::int64_t>(logits.size()))));
  kernels::segment_masses(context, logits, inverse_temperature, masses);
  for (const SegmentMass& mass : masses) {
    put(out, mass.maximum);
    put(out, mass.sum);
  }
}
void take_masses(std::int64_t width, const std::byte*& in, std::vector<SegmentMass>& masses) {
  for (std::int64_t i = kernels::vocabulary_segments(width); i > 0; --i) {
    const auto maximum = take<float>(in);
    masses.push_back({maximum, take<double>(in)});
  }
}

// The best of all parts, best first; at most k.
template <typename T, typename F>
void keep_best(std::vector<T>& all, std::int64_t k, F&& candidate_of) {
  std::ranges::sort(all, kernels::better, candidate_of);
  if (static_cast<std::int64_t>(all.size()) > k) all.resize(static_cast<std::size_t>(k));
}

}  // namespace

// What the parts of a row say together.
struct ShardSampling::Merge {
  struct Entry {
    Candidate candidate;
    float raw = 0;
  };
  std::vector<Entry> entries;
  std::vector<SegmentMass> masses;
  std::vector<SegmentMass> raw_masses;
  std::vector<Candidate> top;
};

ShardSampling::ShardSampling(const kernels::Context& context, parallel::Peers& peers,
                             std::vector<std::int64_t> ends)
    : context_(context), peers_(peers), ends_(std::move(ends)), boxes_(ends_.size()), begins_(ends_.size()) {}

std::int64_t ShardSampling::width(std::int32_t rank) const {
  const auto r = static_cast<std::size_t>(rank);
  return ends_[r] - (rank == 0 ? 0 : ends_[r - 1]);
}

TokenId ShardSampling::first() const {
  const std::int32_t rank = peers_.tensor_index();
  return static_cast<TokenId>(rank == 0 ? 0 : ends_[static_cast<std::size_t>(rank) - 1]);
}

std::size_t ShardSampling::bytes_of(const Shape& shape, std::int32_t rank) const {
  const std::int64_t width = this->width(rank);
  const auto candidates = static_cast<std::size_t>(std::min(std::max<std::int64_t>(shape.ranked, 1), width));
  const auto masses = static_cast<std::size_t>(kernels::vocabulary_segments(width)) * kMassBytes;
  std::size_t bytes = candidates * (kCandidateBytes + (shape.raw ? sizeof(float) : 0));
  if (shape.mass) bytes += masses;
  if (shape.logprobs >= 0)
    bytes +=
        masses + static_cast<std::size_t>(std::min<std::int64_t>(shape.logprobs, width)) * kCandidateBytes;
  return bytes;
}

void ShardSampling::write_logprobs(std::span<const float> logits, std::int32_t k, std::byte*& out) const {
  put_masses(context_, logits, 1, out);
  for (const Candidate& each : kernels::top_candidates(logits, k)) {
    put(out, first() + each.id);
    put(out, each.logit);
  }
}

void ShardSampling::write(const Row& row, const Shape& shape, std::byte* out) const {
  if (row.logits.empty()) return;
  row.sampler->adjust(row.logits, first());
  std::vector<Candidate> candidates;
  if (shape.ranked == 0) {
    candidates.push_back(row.sampler->best(context_, row.logits, first()));
  } else {
    candidates = kernels::top_candidates(row.logits, shape.ranked);
    for (Candidate& each : candidates) each.id += first();
  }
  std::byte* at = out + candidates.size() * (kCandidateBytes + (shape.raw ? sizeof(float) : 0));
  if (shape.mass) put_masses(context_, row.logits, row.sampler->inverse_temperature(), at);
  row.sampler->restore(row.logits);
  for (const Candidate& each : candidates) {
    put(out, each.id);
    put(out, each.logit);
    if (shape.raw) put(out, row.logits[static_cast<std::size_t>(each.id - first())]);
  }
  if (shape.logprobs >= 0) write_logprobs(row.logits, shape.logprobs, at);
}

// Makes room in boxes_ and sends, or receives, what `write_row` fills in for each row.
template <typename F>
void ShardSampling::exchange(std::span<const Shape> shapes, F&& write_row) {
  const std::int32_t me = peers_.tensor_index();
  std::vector<std::span<std::byte>> theirs;
  for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(ends_.size()); ++rank) {
    auto& begins = begins_[static_cast<std::size_t>(rank)];
    auto& box = boxes_[static_cast<std::size_t>(rank)];
    begins.clear();
    std::size_t bytes = 0;
    for (const Shape& shape : shapes) {
      begins.push_back(bytes);
      bytes += bytes_of(shape, rank);
    }
    if (rank == me || me == 0) box.resize(bytes);
    theirs.push_back(rank == me ? std::span<std::byte>() : std::span(box));
  }
  auto& mine = boxes_[static_cast<std::size_t>(me)];
  context_.pool->parallel_for(static_cast<std::int64_t>(shapes.size()), 1,
                              [&](std::int64_t begin, std::int64_t end, int) {
                                for (std::int64_t i = begin; i < end; ++i) {
                                  const auto row = static_cast<std::size_t>(i);
                                  write_row(row, mine.data() + begins_[static_cast<std::size_t>(me)][row]);
                                }
                              });
  peers_.gather_to_first(mine, theirs);
}

ShardSampling::Merge ShardSampling::merge(const Shape& shape, std::size_t row) const {
  Merge merged;
  for (std::int32_t rank = 0; rank < static_cast<std::int32_t>(ends_.size()); ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    const std::int64_t width = this->width(rank);
    const std::byte* in = boxes_[r].data() + begins_[r][row];
    for (std::int64_t i = std::min(std::max<std::int64_t>(shape.ranked, 1), width); i > 0; --i) {
      Merge::Entry entry;
      entry.candidate.id = take<TokenId>(in);
      entry.candidate.logit = take<float>(in);
      if (shape.raw) entry.raw = take<float>(in);
      merged.entries.push_back(entry);
    }
    if (shape.mass) take_masses(width, in, merged.masses);
    if (shape.logprobs < 0) continue;
    take_masses(width, in, merged.raw_masses);
    for (std::int64_t i = std::min<std::int64_t>(shape.logprobs, width); i > 0; --i) {
      const auto id = take<TokenId>(in);
      merged.top.push_back({id, take<float>(in)});
    }
  }
  keep_best(merged.entries, std::max<std::int64_t>(shape.ranked, 1), &Merge::Entry::candidate);
  keep_best(merged.top, std::max(shape.logprobs, 0), std::identity());
  return merged;
}

RowLogprobs ShardSampling::logprobs_of(const Merge& merged, float raw) {
  RowLogprobs result;
  const float total = kernels::fold_masses(merged.raw_masses);
  result.logprob = raw - total;
  for (const Candidate& each : merged.top) result.top.push_back({each.id, each.logit - total});
  return result;
}

std::optional<ShardSampling::Chosen> ShardSampling::decide(const Merge& merged, const Sampler& sampler,
                                                           bool all, float mass) {
  TokenId id = merged.entries.front().candidate.id;
  if (sampler.ranks()) {
    std::vector<Candidate> ranked;
    for (const Merge::Entry& entry : merged.entries) ranked.push_back(entry.candidate);
    const auto chosen = sampler.choose(ranked, all, mass);
    if (!chosen) return std::nullopt;
    id = *chosen;
  }
  const auto entry =
      std::ranges::find(merged.entries, id, [](const Merge::Entry& each) { return each.candidate.id; });
  return Chosen{id, entry->raw};
}

void ShardSampling::sample(std::span<const Row> rows, std::span<SampledToken> tokens) {
  const bool decides = peers_.tensor_index() == 0;
  const std::int64_t vocabulary = ends_.back();
  std::vector<std::size_t> open(rows.size());  // rows that this round is about
  std::iota(open.begin(), open.end(), std::size_t{0});
  std::vector<std::int64_t> ranked;
  for (const Row& row : rows)
    ranked.push_back(row.sampler->ranks() ? row.sampler->first_ranked(vocabulary) : 0);
  std::vector<Merge> first_round(rows.size());
  std::vector<float> mass(rows.size(), 0);
  for (bool first = true; !open.empty() && peers_.status().ok(); first = false) {
    std::vector<Shape> shapes;
    for (const std::size_t row : open) {
      const SamplingParams& params = rows[row].sampler->params();
      Shape shape{ranked[row], false, params.logprobs >= 0, -1};
      if (first) {
        shape.mass = rows[row].sampler->wants_mass();
        shape.logprobs = params.logprobs;
      }
      shapes.push_back(shape);
    }
    exchange(shapes, [&](std::size_t i, std::byte* out) { write(rows[open[i]], shapes[i], out); });
    if (!peers_.status().ok()) return;
    // Who may not be decided yet: known to all. Who is not: to the first.
    std::vector<std::size_t> undecided;
    std::vector<std::byte> more;
    for (std::size_t i = 0; i < open.size(); ++i) {
      const std::size_t row = open[i];
      const Sampler& sampler = *rows[row].sampler;
      const std::int64_t most = sampler.ranks() ? sampler.most_ranked(vocabulary) : 0;
      const bool all = ranked[row] == most;
      bool again = false;
      if (decides) {
        Merge merged = merge(shapes[i], i);
        if (first && shapes[i].mass) mass[row] = kernels::fold_masses(merged.masses);
        const auto chosen = decide(merged, sampler, all, mass[row]);
        if (first) first_round[row] = std::move(merged);
        again = !chosen;
        if (chosen) {
          tokens[row].id = chosen->id;
          if (sampler.params().logprobs >= 0) {
            RowLogprobs logprobs = logprobs_of(first_round[row], chosen->raw);
            tokens[row].logprob = logprobs.logprob;
            tokens[row].top = std::move(logprobs.top);
          }
        }
      }
      if (all) continue;
      undecided.push_back(row);
      more.push_back(std::byte{again});
    }
    if (!more.empty()) peers_.tell_group(more);
    open.clear();
    for (std::size_t i = 0; i < undecided.size(); ++i) {
      const std::size_t row = undecided[i];
      if (more[i] == std::byte{0}) continue;
      ranked[row] = Sampler::next_ranked(ranked[row], rows[row].sampler->most_ranked(vocabulary));
      open.push_back(row);
    }
  }
  for (const Row& row : rows) row.sampler->advance();
}

void ShardSampling::score(std::span<const Score> scores, std::span<RowLogprobs> results) {
  std::vector<Shape> shapes;
  for (const Score& score : scores) shapes.push_back({0, false, true, score.k});
  exchange(shapes, [&](std::size_t i, std::byte* out) {
    const Score& score = scores[i];
    if (score.logits.empty()) return;
    // The scored token's logit, where it lies in this part: as its best candidate, which none else is.
    const std::int64_t at = std::int64_t{score.id} - first();
    const bool here = at >= 0 && at < static_cast<std::int64_t>(score.logits.size());
    put(out, score.id);
    put(out, here ? 1.0F : 0.0F);
    put(out, here ? score.logits[static_cast<std::size_t>(at)] : 0.0F);
    write_logprobs(score.logits, score.k, out);
  });
  if (peers_.tensor_index() != 0 || !peers_.status().ok()) return;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    const Merge merged = merge(shapes[i], i);
    results[i] = logprobs_of(merged, merged.entries.front().raw);
  }
}

}  // namespace shoal::engine
