#include "wire/step_plan_codec.h"

#include "wire/bytes.h"

namespace shoal::wire {
namespace {

// Bytes of the shortest element of each list: a count that the rest cannot hold is found before any memory is
// taken for it.
constexpr std::size_t kLeastOpen = 4 + 7 * 4 + 4 + 8 + 4 + 4 + 4 + 4 + 4 + 4;
constexpr std::size_t kGrant = 4 + 4 + 4 + 12;
constexpr std::size_t kRelease = 12;
constexpr std::size_t kLeastItem = 4 + 4 + 4 + 1 + 4;
constexpr std::size_t kTop = 8;
constexpr std::size_t kLeastSampled = 4 + 4 + 4 + 4;
constexpr std::size_t kLeastScored = 4 + 4 + 4 + 4 + 4;

void put(ByteWriter& out, const SamplingParams& s) {
  out.put(s.temperature);
  out.put(s.top_k);
  out.put(s.top_p);
  out.put(s.min_p);
  out.put(s.repetition_penalty);
  out.put(s.frequency_penalty);
  out.put(s.presence_penalty);
  out.put_list(s.logit_bias, [&](const auto& bias) {
    out.put(bias.first);
    out.put(bias.second);
  });
  out.put(s.seed);
  out.put(s.choice);
  out.put(s.min_tokens);
  out.put_list(s.stop_ids);
  out.put(s.logprobs);
}

void get(ByteReader& in, SamplingParams& s) {
  in.get(s.temperature);
  in.get(s.top_k);
  in.get(s.top_p);
  in.get(s.min_p);
  in.get(s.repetition_penalty);
  in.get(s.frequency_penalty);
  in.get(s.presence_penalty);
  in.get_list(s.logit_bias, 8, [&](auto& bias) {
    in.get(bias.first);
    in.get(bias.second);
  });
  in.get(s.seed);
  in.get(s.choice);
  in.get(s.min_tokens);
  in.get_list(s.stop_ids);
  in.get(s.logprobs);
}

void put(ByteWriter& out, const std::vector<TokenLogprob>& top) {
  out.put_list(top, [&](const TokenLogprob& each) {
    out.put(each.id);
    out.put(each.logprob);
  });
}

void get(ByteReader& in, std::vector<TokenLogprob>& top) {
  in.get_list(top, kTop, [&](TokenLogprob& each) {
    in.get(each.id);
    in.get(each.logprob);
  });
}

}  // namespace

std::vector<std::byte> encode(const StepPlan& plan) {
  ByteWriter out;
  out.put(plan.number.value);
  out.put(plan.epoch.value);
  out.put_list(plan.closes, [&](SequenceSlot slot) { out.put(slot.value); });
  out.put_list(plan.opens, [&](const SequenceOpen& open) {
    out.put(open.sequence.value);
    put(out, open.sampling);
    out.put_list(open.prompt);
    out.put_list(open.output);
  });
  out.put_list(plan.grants, [&](const PageGrant& grant) {
    out.put(grant.sequence.value);
    out.put(grant.group.value);
    out.put(grant.logical_page);
    out.put(grant.page.pool);
    out.put(grant.page.slot);
    out.put(grant.page.generation);
  });
  out.put_list(plan.releases, [&](const PageRelease& release) {
    out.put(release.sequence.value);
    out.put(release.group.value);
    out.put(release.first_kept);
  });
  out.put_list(plan.sub_batches, [&](const SubBatch& batch) {
    out.put_list(batch.items, [&](const WorkItem& item) {
      out.put(item.sequence.value);
      out.put(item.start);
      out.put_list(item.tokens);
      out.put(static_cast<std::uint8_t>(item.sample));
      out.put(item.prompt_logprobs);
    });
  });
  return out.take();
}

Expected<StepPlan> decode_step_plan(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  StepPlan plan;
  in.get(plan.number.value);
  in.get(plan.epoch.value);
  in.get_list(plan.closes, 4, [&](SequenceSlot& slot) { in.get(slot.value); });
  in.get_list(plan.opens, kLeastOpen, [&](SequenceOpen& open) {
    in.get(open.sequence.value);
    get(in, open.sampling);
    in.get_list(open.prompt);
    in.get_list(open.output);
  });
  in.get_list(plan.grants, kGrant, [&](PageGrant& grant) {
    in.get(grant.sequence.value);
    in.get(grant.group.value);
    in.get(grant.logical_page);
    in.get(grant.page.pool);
    in.get(grant.page.slot);
    in.get(grant.page.generation);
  });
  in.get_list(plan.releases, kRelease, [&](PageRelease& release) {
    in.get(release.sequence.value);
    in.get(release.group.value);
    in.get(release.first_kept);
  });
  in.get_list(plan.sub_batches, 4, [&](SubBatch& batch) {
    in.get_list(batch.items, kLeastItem, [&](WorkItem& item) {
      in.get(item.sequence.value);
      in.get(item.start);
      in.get_list(item.tokens);
      item.sample = in.get_flag();
      in.get(item.prompt_logprobs);
    });
  });
  if (!in.done()) return Status(ErrorCode::kCorrupt, "a step plan's bytes are not a step plan");
  return plan;
}

std::vector<std::byte> encode(const StepResult& result) {
  ByteWriter out;
  out.put(result.number.value);
  out.put_string(result.error);
  out.put_list(result.sampled, [&](const SampledToken& token) {
    out.put(token.sequence.value);
    out.put(token.id);
    out.put(token.logprob);
    put(out, token.top);
  });
  out.put_list(result.prompt_logprobs, [&](const PromptLogprobs& scored) {
    out.put(scored.sequence.value);
    out.put(scored.position);
    out.put(scored.id);
    out.put(scored.logprob);
    put(out, scored.top);
  });
  out.put(result.seconds);
  return out.take();
}

Expected<StepResult> decode_step_result(std::span<const std::byte> bytes) {
  ByteReader in(bytes);
  StepResult result;
  in.get(result.number.value);
  result.error = in.get_string();
  in.get_list(result.sampled, kLeastSampled, [&](SampledToken& token) {
    in.get(token.sequence.value);
    in.get(token.id);
    in.get(token.logprob);
    get(in, token.top);
  });
  in.get_list(result.prompt_logprobs, kLeastScored, [&](PromptLogprobs& scored) {
    in.get(scored.sequence.value);
    in.get(scored.position);
    in.get(scored.id);
    in.get(scored.logprob);
    get(in, scored.top);
  });
  in.get(result.seconds);
  if (!in.done()) return Status(ErrorCode::kCorrupt, "a step result's bytes are not a step result");
  return result;
}

}  // namespace shoal::wire
