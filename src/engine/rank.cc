#include "engine/rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <string_view>

#include "core/clock.h"
#include "kernels/attention.h"

namespace shoal::engine {
namespace {

// Of the tokens that a sequence is given in the plan.
std::int32_t last_page_of(const StepPlan& plan, SequenceSlot sequence) {
  std::int32_t last = 0;
  for (const SubBatch& batch : plan.sub_batches) {
    for (const WorkItem& item : batch.items) {
      if (item.sequence == sequence) last = std::max(last, (item.start + item.count() - 1) / kPageTokens);
    }
  }
  return last;
}

}  // namespace

Rank::Rank(model::Model& model, const kv::KvStore& store, kernels::Context context, Options options)
    : model_(model),
      store_(store),
      context_(context),
      options_(std::move(options)),
      vocabulary_(model.description().vocabulary),
      groups_(model.kv_groups().size()),
      next_(options_.first_plan),
      rows_(static_cast<std::size_t>(options_.max_slots)) {
  for (std::size_t g = 0; g < groups_; ++g) {
    const std::vector<std::int32_t>& layers = model.kv_groups()[g].layers;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      const auto layer = static_cast<std::size_t>(layers[i]);
      if (layer_places_.size() <= layer) layer_places_.resize(layer + 1);
      layer_places_[layer] = {static_cast<std::int32_t>(g), static_cast<std::int32_t>(i)};
    }
  }
  if (options_.peers == nullptr) return;
  coordinate_ = options_.peers->context_index();
  coordinates_ = options_.peers->context_size();
  if (options_.peers->layout().degrees().tp > 1)
    shards_.emplace(context_, *options_.peers, model.vocabulary_ends());
}

Rank::Row* Rank::row(SequenceSlot sequence) {
  if (sequence.value < 0 || static_cast<std::size_t>(sequence.value) >= rows_.size()) return nullptr;
  return &rows_[static_cast<std::size_t>(sequence.value)];
}

std::span<float> Rank::logits_row(std::int64_t row) {
  const std::int64_t width = model_.vocabulary().size();
  return {logits_.data() + row * width, static_cast<std::size_t>(width)};
}

StepResult Rank::run(const StepPlan& plan) {
  began_ = now();
  waited_before_ = options_.peers == nullptr ? 0 : options_.peers->waited_for_stages();
  stage_seconds_.clear();
  copy_seconds_ = 0;
  StepResult result;
  result.number = plan.number;
  // Whatever goes wrong, memory that is short included, is an answer: the executor has nobody to throw to.
  try {
    if (const Status status = apply(plan, result); !status.ok()) {
      fail(plan, result, "", status.message());
      // Nobody else need have failed: the others would wait for this one.
      if (options_.peers != nullptr && options_.peers->status().ok()) options_.peers->fail(status);
    }
    if (samples() && batch_.rows() > 0 && result.error.empty()) {
      stage_seconds_.push_back(own_seconds());
      result.stage_seconds = stage_seconds_;
    }
  } catch (const std::exception& error) {
    fail(plan, result, "the forward pass failed: ", error.what());
    // The others' passes did not: the ranks no longer hold the same.
    if (options_.peers != nullptr) options_.peers->fail({ErrorCode::kInternal, result.error});
  }
  return result;
}

double Rank::own_seconds() const {
  const double waited = options_.peers == nullptr ? 0 : options_.peers->waited_for_stages() - waited_before_;
  return seconds_between(began_, now()) - waited - copy_seconds_;
}

Status Rank::apply(const StepPlan& plan, StepResult& result) {
  if (plan.number != next_)
    return {ErrorCode::kInternal,
            fmt::format("step plan {} arrived where {} was due", plan.number.value, next_.value)};
  ++next_.value;
  SHOAL_TRY(copy_pages(plan, result));

  batch_.tokens.clear();
  batch_.positions.clear();
  batch_.logit_rows.clear();
  for (model::BatchSpan& span : batch_.spans) spare_spans_.push_back(std::move(span));
  batch_.spans.clear();
  samples_.clear();
  scores_.clear();
  departing_.clear();

  if (!CoordinateSet::first(coordinates_).includes(plan.coordinates))
    return {ErrorCode::kInternal,
            fmt::format("step plan {} is for more than {} coordinates", plan.number.value, coordinates_)};
  const bool own = plan.is_for(coordinate_);
  own_plans_ += own ? 1 : 0;
  // So far back the ids have been sent: taking them waits for nobody, and leaves room on their way.
  while (!awaited_.empty() &&
         awaited_.front().plan + static_cast<std::uint64_t>(options_.plans_in_flight) <= own_plans_)
    SHOAL_TRY(take_awaited_ids());
  SHOAL_TRY(apply_changes(plan));
  const auto sub_batch = static_cast<std::size_t>(coordinate_);
  if (sub_batch < plan.sub_batches.size()) {
    for (const WorkItem& item : plan.sub_batches[sub_batch].items) SHOAL_TRY(add_item(item));
  }
  if (coordinates_ > 1) SHOAL_TRY(add_context(plan));
  if (options_.service != nullptr) add_departing(plan);
  if (!own && batch_.rows() > 0)
    return {ErrorCode::kInternal, fmt::format("step plan {} gives work to coordinate {}, which it is not for",
                                              plan.number.value, coordinate_)};
  if (batch_.rows() > 0 || batch_.context != nullptr) return compute(result);
  for (std::int32_t layer = 0; layer < std::ssize(layer_places_); ++layer) tell_departing(layer);
  return {};
}

// The table is brought to where the plan would have left it, its sequences failed: the head's later plans
// fit. Allocates nothing that must succeed.
void Rank::fail(const StepPlan& plan, StepResult& result, std::string_view what,
                std::string_view cause) noexcept {
  for (const SequenceSlot sequence : plan.closes) {
    if (Row* at = row(sequence)) *at = Row{};
  }
  const auto mark = [&](SequenceSlot sequence) {
    if (Row* at = row(sequence)) at->failed = at->open;
  };
  for (const SequenceOpen& each : plan.opens) {
    if (Row* at = row(each.sequence)) at->open = true;
    mark(each.sequence);
  }
  for (const PageGrant& each : plan.grants) mark(each.sequence);
  for (const PageRelease& each : plan.releases) mark(each.sequence);
  for (const SubBatch& each : plan.sub_batches) {
    for (const WorkItem& item : each.items) mark(item.sequence);
  }
  result.sampled.clear();
  result.prompt_logprobs.clear();
  try {
    result.error = fmt::format("{}{}", what, cause);
  } catch (const std::exception&) {
    result.error = "out of memory";  // short enough to need none
  }
}

Status Rank::compute(StepResult& result) {
  const auto wanted = static_cast<std::int64_t>(batch_.logit_rows.size());
  const std::int64_t width = model_.vocabulary().size();
  if (const auto size = static_cast<std::size_t>(wanted * width); logits_.size() < size) logits_.resize(size);
  model::LayerHook hook;
  if (!departing_.empty()) hook = [this](std::int32_t layer) { tell_departing(layer); };
  model_.forward(batch_, store_.views(), MatrixView<float>(logits_.data(), wanted, width), hook);
  if (batch_.rows() == 0) return peers_status();
  exchange_stage_seconds();
  SHOAL_TRY(peers_status());
  if (shards_ && options_.peers->last_stage()) {
    sample_shards(result);
    SHOAL_TRY(peers_status());
  } else if (samples()) {
    score_prompts(result);
    sample(result);
  }
  return options_.peers == nullptr ? Status() : exchange_ids(result);
}

// The sampling rank sends what it chose; ranks of the first stage note that it will come.
Status Rank::exchange_ids(const StepResult& result) {
  if (samples_.empty()) return {};
  if (samples()) {
    ids_.clear();
    for (const SampledToken& token : result.sampled) ids_.push_back(token.id);
    options_.peers->send_ids(ids_);
  } else if (options_.peers->last_stage()) {
    // At once: the rank that sends them also sums with this one, and ids left for later would stand in the
    // sums' way.
    ids_.resize(samples_.size());
    options_.peers->receive_ids(ids_);
    SHOAL_TRY(peers_status());
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      Row& at = *row(samples_[i].sequence);
      at.last = ids_[i];
      at.sampler->note(ids_[i]);
    }
  } else if (options_.peers->first_stage()) {
    AwaitedIds awaited{own_plans_, {}};
    for (const Sample& each : samples_) {
      Row& at = *row(each.sequence);
      ++at.awaited_ids;
      awaited.rows.emplace_back(each.sequence, at.opened);
    }
    awaited_.push_back(std::move(awaited));
  }
  return peers_status();
}

// What each stage took travels to the sampling rank, behind the residual stream.
void Rank::exchange_stage_seconds() {
  parallel::Peers* peers = options_.peers;
  if (peers == nullptr || peers->tensor_index() != 0) return;
  if (!peers->first_stage()) {
    stage_seconds_.resize(static_cast<std::size_t>(peers->stage()));
    peers->receive_stage_seconds(stage_seconds_);
  }
  if (peers->last_stage()) return;
  stage_seconds_.push_back(own_seconds());
  peers->send_stage_seconds(stage_seconds_);
}

Status Rank::take_awaited_ids() {
  const AwaitedIds& awaited = awaited_.front();
  ids_.resize(awaited.rows.size());
  options_.peers->receive_ids(ids_);
  SHOAL_TRY(peers_status());
  for (std::size_t i = 0; i < ids_.size(); ++i) {
    Row& at = *row(awaited.rows[i].first);
    // The slot may be another sequence's by now.
    if (at.opened != awaited.rows[i].second) continue;
    at.last = ids_[i];
    --at.awaited_ids;
  }
  awaited_.pop_front();
  return {};
}

Status Rank::apply_changes(const StepPlan& plan) {
  for (const SequenceSlot sequence : plan.closes) {
    Row* at = row(sequence);
    if (at == nullptr || !at->open)
      return {ErrorCode::kInternal,
              fmt::format("step plan closes sequence {}, which is not open", sequence.value)};
    *at = {};
  }
  for (const SequenceOpen& each : plan.opens) SHOAL_TRY(open(each));
  for (const PageGrant& each : plan.grants) SHOAL_TRY(grant(each));
  for (const PageRelease& each : plan.releases) SHOAL_TRY(release(each));
  return {};
}

Status Rank::open(const SequenceOpen& open) {
  Row* at = row(open.sequence);
  if (at == nullptr || at->open)
    return {
        ErrorCode::kInternal,
        fmt::format("step plan opens sequence {}, which is open or outside the table", open.sequence.value)};
  at->open = true;
  at->opened = ++opens_;
  at->sampler.emplace(open.sampling, open.prompt, open.output);
  at->sampler->allow_for(vocabulary_);
  at->prompt = open.prompt;
  at->last = open.output.empty() ? -1 : open.output.back();
  at->slots.assign(groups_, {});
  at->owners.assign(groups_, {});
  at->room = open.room;
  at->room_tokens = open.room_tokens;
  at->told_pages = 0;
  return {};
}

Status Rank::grant(const PageGrant& grant) {
  Row* at = row(grant.sequence);
  const auto group = static_cast<std::size_t>(grant.group.value);
  if (at != nullptr && at->failed) return {};
  const std::int32_t owner = grant.page.pool / static_cast<std::int32_t>(groups_);
  if (at == nullptr || !at->open || group >= groups_ || grant.logical_page < 0 || grant.page.slot < 0 ||
      grant.page.slot >= store_.views()[group].layout.slots || owner < 0 || owner >= coordinates_)
    return {ErrorCode::kInternal,
            fmt::format("step plan grants page {} of group {} to sequence {}: there is no such thing here",
                        grant.page.slot, grant.group.value, grant.sequence.value)};
  std::vector<std::int32_t>& slots = at->slots[group];
  std::vector<std::int32_t>& owners = at->owners[group];
  // Pages come in order; where a window starts later, those before it are absent.
  const auto page = static_cast<std::size_t>(grant.logical_page);
  if (slots.size() <= page) {
    slots.resize(page + 1, kernels::kNoSlot);
    owners.resize(page + 1, -1);
  }
  slots[page] = grant.page.slot;
  owners[page] = owner;
  return {};
}

Status Rank::release(const PageRelease& release) {
  Row* at = row(release.sequence);
  const auto group = static_cast<std::size_t>(release.group.value);
  if (at != nullptr && at->failed) return {};
  if (at == nullptr || !at->open || group >= groups_)
    return {ErrorCode::kInternal, fmt::format("step plan releases pages of sequence {}, which is not open",
                                              release.sequence.value)};
  std::vector<std::int32_t>& slots = at->slots[group];
  for (std::size_t page = 0; page < slots.size() && page < static_cast<std::size_t>(release.first_kept);
       ++page) {
    slots[page] = kernels::kNoSlot;
    at->owners[group][page] = -1;
  }
  return {};
}

// Which pages of prompts that go to another worker are complete once the plan is: those that its tokens fill,
// the last one of a prompt, and, in a sequence's first plan, those that were cached.
void Rank::add_departing(const StepPlan& plan) {
  const auto tell = [&](Row& at, std::int32_t end) {
    const std::int32_t full =
        end >= at.room_tokens ? (at.room_tokens + kPageTokens - 1) / kPageTokens : end / kPageTokens;
    for (std::size_t g = 0; g < groups_ && full > at.told_pages; ++g) {
      std::vector<SlotRun> runs;
      const std::int32_t pages = std::min(full, static_cast<std::int32_t>(at.slots[g].size()));
      for (std::int32_t page = at.told_pages; page < pages; ++page) {
        const auto index = static_cast<std::size_t>(page);
        if (at.slots[g][index] == kernels::kNoSlot || at.owners[g][index] != coordinate_) continue;
        if (runs.empty() || runs.back().first + std::ssize(runs.back().slots) != page)
          runs.push_back({page, {}});
        runs.back().slots.push_back(at.slots[g][index]);
      }
      if (!runs.empty())
        departing_.push_back({static_cast<std::uint64_t>(at.room), static_cast<std::int32_t>(g),
                              std::make_shared<const std::vector<SlotRun>>(std::move(runs))});
    }
    at.told_pages = std::max(at.told_pages, full);
  };
  // Of one sequence the items of all coordinates together are one run of tokens.
  departing_ends_.clear();
  for (const SubBatch& batch : plan.sub_batches) {
    for (const WorkItem& item : batch.items) {
      const Row* at = row(item.sequence);
      if (at == nullptr || !at->open || at->failed || at->room < 0) continue;
      std::int32_t& end = departing_ends_[item.sequence.value];
      end = std::max(end, item.start + item.count());
    }
  }
  for (const auto& [sequence, end] : departing_ends_) tell(*row(SequenceSlot(sequence)), end);
}

void Rank::tell_departing(std::int32_t layer) {
  const auto [group, place] = layer_places_[static_cast<std::size_t>(layer)];
  for (const Departing& each : departing_) {
    if (each.group == group) options_.service->computed({each.room, group, place, each.runs});
  }
}

// Of token i of an item: it is sampled after, or scores the one that follows it.
bool Rank::wants_logits(const Row& at, const WorkItem& item, std::int32_t i) const {
  const auto next = static_cast<std::size_t>(item.start + i + 1);
  return (item.prompt_logprobs >= 0 && next < at.prompt.size()) || (item.sample && i + 1 == item.count());
}

// What all coordinates compute, where any of it sees or writes another's pages.
Status Rank::add_context(const StepPlan& plan) {
  batch_.context = nullptr;
  const auto coordinates = static_cast<std::size_t>(coordinates_);
  if (plan.sub_batches.size() != coordinates)
    return {ErrorCode::kInternal, fmt::format("step plan has {} sub-batches for {} coordinates",
                                              plan.sub_batches.size(), coordinates_)};
  if (!plan.is_for(coordinate_)) return {};
  context_batch_.groups.resize(groups_);
  context_batch_.logit_rows.resize(coordinates);
  for (ContextWork& work : context_batch_.groups) work.resize(coordinates);
  bool crossing = false;
  for (std::size_t c = 0; c < coordinates; ++c) {
    for (ContextWork& work : context_batch_.groups) work[c].clear();
    context_batch_.logit_rows[c].clear();
    std::int32_t rows = 0;
    for (const WorkItem& item : plan.sub_batches[c].items) {
      const Row* at = row(item.sequence);
      if (at != nullptr && at->failed) continue;
      const std::int32_t end = (item.start + item.count() - 1) / kPageTokens + 1;
      const std::int32_t masked = plan.compute_masked ? last_page_of(plan, item.sequence) + 1 - end : 0;
      const auto pages = static_cast<std::size_t>(end + masked);
      for (std::size_t g = 0; g < groups_; ++g) {
        if (at == nullptr || !at->open || at->slots[g].size() < pages || item.start < 0)
          return {ErrorCode::kInternal,
                  fmt::format("step plan gives work to sequence {}, which is not open or has no page for it",
                              item.sequence.value)};
        const ContextSpan span{rows,
                               item.count(),
                               item.start,
                               item.pass_queries,
                               item.tokens.empty(),
                               masked,
                               std::span(at->slots[g]).first(pages),
                               std::span(at->owners[g]).first(pages)};
        crossing = crossing || crosses(span, static_cast<std::int32_t>(c));
        // Whoever the plan is not for would be waited for in vain.
        for (const std::int32_t owner : span.owners) {
          if (owner >= 0 && !plan.is_for(owner))
            return {ErrorCode::kInternal,
                    fmt::format("step plan {} needs pages of coordinate {}, which it is not for",
                                plan.number.value, owner)};
        }
        context_batch_.groups[g][c].push_back(span);
      }
      for (std::int32_t i = 0; i < item.count(); ++i) {
        if (wants_logits(*at, item, i)) context_batch_.logit_rows[c].push_back(rows + i);
      }
      rows += item.count();
    }
  }
  if (crossing) batch_.context = &context_batch_;
  return {};
}

Status Rank::add_item(const WorkItem& item) {
  Row* at = row(item.sequence);
  // Composed before its head knew: nobody waits for it any more.
  if (at != nullptr && at->failed) return {};
  // Only up to its own: later plans' ids may be a stage's pass away.
  while (at != nullptr && at->awaited_ids > 0 && item.tokens.empty()) SHOAL_TRY(take_awaited_ids());
  if (at == nullptr || !at->open || (item.tokens.empty() && at->last < 0 && needs_ids()))
    return {ErrorCode::kInternal,
            fmt::format("step plan gives work to sequence {}, which is not open or has no sampled token",
                        item.sequence.value)};
  const auto end = static_cast<std::size_t>(item.start + item.count());
  for (const auto& slots : at->slots) {
    if (slots.size() * kPageTokens < end)
      return {ErrorCode::kInternal,
              fmt::format("step plan computes position {} of sequence {} without a page", end - 1,
                          item.sequence.value)};
  }
  model::BatchSpan span;
  if (!spare_spans_.empty()) {
    span = std::move(spare_spans_.back());
    spare_spans_.pop_back();
  }
  span.first_row = static_cast<std::int32_t>(batch_.rows());
  span.rows = item.count();
  span.start = item.start;
  span.slots.clear();
  for (const auto& slots : at->slots) span.slots.emplace_back(slots);
  batch_.spans.push_back(std::move(span));

  if (item.tokens.empty()) batch_.tokens.push_back(at->last);
  batch_.tokens.insert(batch_.tokens.end(), item.tokens.begin(), item.tokens.end());
  for (std::int32_t i = 0; i < item.count(); ++i) {
    const std::int32_t row = static_cast<std::int32_t>(batch_.positions.size());
    batch_.positions.push_back(item.start + i);
    const std::int32_t next = item.start + i + 1;
    const bool score = item.prompt_logprobs >= 0 && static_cast<std::size_t>(next) < at->prompt.size();
    const bool sampled = item.sample && i + 1 == item.count();
    if (!score && !sampled) continue;
    const auto logits_row = static_cast<std::int64_t>(batch_.logit_rows.size());
    batch_.logit_rows.push_back(row);
    if (score) scores_.push_back({item.sequence, next, item.prompt_logprobs, logits_row});
    if (sampled) samples_.push_back({item.sequence, logits_row});
  }
  return {};
}

void Rank::score_prompts(StepResult& result) {
  result.prompt_logprobs.resize(scores_.size());
  context_.pool->parallel_for(
      static_cast<std::int64_t>(scores_.size()), 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
          const PromptScore& score = scores_[static_cast<std::size_t>(i)];
          const TokenId id = row(score.sequence)->prompt[static_cast<std::size_t>(score.position)];
          RowLogprobs logprobs = row_logprobs(context_, logits_row(score.logits_row), id, score.k);
          result.prompt_logprobs[static_cast<std::size_t>(i)] = {score.sequence, score.position, id,
                                                                 logprobs.logprob, std::move(logprobs.top)};
        }
      });
}

void Rank::observe_samples() {
  if (!options_.observer) return;
  const auto first = static_cast<TokenId>(model_.vocabulary().begin);
  for (const Sample& each : samples_) {
    const Sampler& sampler = *row(each.sequence)->sampler;
    options_.observer(sampler.params(), sampler.output_index(), first, logits_row(each.logits_row));
  }
}

// Every rank of the last stage: what its part of the vocabulary says.
void Rank::sample_shards(StepResult& result) {
  observe_samples();
  std::vector<ShardSampling::Score> scores;
  for (const PromptScore& score : scores_)
    scores.push_back({row(score.sequence)->prompt[static_cast<std::size_t>(score.position)], score.k,
                      logits_row(score.logits_row)});
  std::vector<RowLogprobs> scored(scores.size());
  if (!scores.empty()) shards_->score(scores, scored);
  std::vector<ShardSampling::Row> rows;
  for (const Sample& each : samples_)
    rows.push_back({&*row(each.sequence)->sampler, logits_row(each.logits_row)});
  std::vector<SampledToken> tokens(rows.size());
  if (!rows.empty()) shards_->sample(rows, tokens);
  if (!samples() || !options_.peers->status().ok()) return;
  for (std::size_t i = 0; i < scores.size(); ++i)
    result.prompt_logprobs.push_back({scores_[i].sequence, scores_[i].position, scores[i].id,
                                      scored[i].logprob, std::move(scored[i].top)});
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    Row& at = *row(samples_[i].sequence);
    tokens[i].sequence = samples_[i].sequence;
    at.last = tokens[i].id;
    at.sampler->note(tokens[i].id);
  }
  result.sampled = std::move(tokens);
}

void Rank::sample(StepResult& result) {
  observe_samples();
  // Rows are independent: which thread takes which does not show.
  result.sampled.resize(samples_.size());
  context_.pool->parallel_for(
      static_cast<std::int64_t>(samples_.size()), 1, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t i = begin; i < end; ++i) {
          const Sample& each = samples_[static_cast<std::size_t>(i)];
          Row& at = *row(each.sequence);
          SampledToken token = at.sampler->sample(context_, logits_row(each.logits_row));
          token.sequence = each.sequence;
          at.last = token.id;
          result.sampled[static_cast<std::size_t>(i)] = std::move(token);
        }
      });
}

}  // namespace shoal::engine
