#include "wire/step_plan_codec.h"

#include "wire/fields.h"

namespace shoal::wire {
namespace {

// Bytes of the shortest element of each list.
constexpr std::size_t kLeastOpen = 4 + 7 * 4 + 4 + 8 + 4 + 4 + 4 + 4 + 4 + 4 + 8 + 4;
constexpr std::size_t kCopy = 12 + 4 + 1;
constexpr std::size_t kGrant = 4 + 4 + 4 + 12;
constexpr std::size_t kRelease = 12;
constexpr std::size_t kLeastItem = 4 + 4 + 4 + 1 + 4 + 1;
constexpr std::size_t kTop = 8;
constexpr std::size_t kLeastSampled = 4 + 4 + 4 + 4;
constexpr std::size_t kLeastScored = 4 + 4 + 4 + 4 + 4;

constexpr auto kSampling = [](auto& io, auto& s) {
  fields(io, s.temperature, s.top_k, s.top_p, s.min_p, s.repetition_penalty, s.frequency_penalty,
         s.presence_penalty);
  list_of(io, s.logit_bias, 8, [&](auto& bias) { fields(io, bias.first, bias.second); });
  fields(io, s.seed, s.choice, s.min_tokens, s.stop_ids, s.logprobs);
};

void coordinates(ByteWriter& out, const CoordinateSet& set) { out.put(set.bits()); }
void coordinates(ByteReader& in, CoordinateSet& set) {
  std::uint64_t bits = 0;
  in.get(bits);
  set = CoordinateSet(bits);
}

constexpr auto kPlan = [](auto& io, auto& plan) {
  fields(io, plan.number, plan.epoch);
  coordinates(io, plan.coordinates);
  list_of(io, plan.copies, kCopy, [&](auto& copy) {
    fields(io, copy.page.pool, copy.page.slot, copy.page.generation, copy.place, copy.out);
  });
  list_of(io, plan.closes, 4, [&](auto& slot) { field(io, slot); });
  list_of(io, plan.opens, kLeastOpen, [&](auto& open) {
    field(io, open.sequence);
    kSampling(io, open.sampling);
    fields(io, open.prompt, open.output, open.room, open.room_tokens);
  });
  list_of(io, plan.grants, kGrant, [&](auto& grant) {
    fields(io, grant.sequence, grant.group, grant.logical_page, grant.page.pool, grant.page.slot,
           grant.page.generation);
  });
  list_of(io, plan.releases, kRelease,
          [&](auto& release) { fields(io, release.sequence, release.group, release.first_kept); });
  list_of(io, plan.sub_batches, 4, [&](auto& batch) {
    list_of(io, batch.items, kLeastItem, [&](auto& item) {
      fields(io, item.sequence, item.start, item.tokens, item.sample, item.prompt_logprobs,
             item.pass_queries);
    });
  });
  field(io, plan.compute_masked);
};

constexpr auto kResult = [](auto& io, auto& result) {
  const auto top = [&](auto& best) {
    list_of(io, best, kTop, [&](auto& each) { fields(io, each.id, each.logprob); });
  };
  fields(io, result.number, result.error);
  list_of(io, result.sampled, kLeastSampled, [&](auto& token) {
    fields(io, token.sequence, token.id, token.logprob);
    top(token.top);
  });
  list_of(io, result.prompt_logprobs, kLeastScored, [&](auto& scored) {
    fields(io, scored.sequence, scored.position, scored.id, scored.logprob);
    top(scored.top);
  });
  fields(io, result.stage_seconds, result.copied_bytes, result.copy_seconds);
};

}  // namespace

std::vector<std::byte> encode(const StepPlan& plan) { return encoded(plan, kPlan); }

Expected<StepPlan> decode_step_plan(std::span<const std::byte> bytes) {
  return decoded<StepPlan>(bytes, kPlan, "a step plan's bytes are not a step plan");
}

std::vector<std::byte> encode(const StepResult& result) { return encoded(result, kResult); }

Expected<StepResult> decode_step_result(std::span<const std::byte> bytes) {
  return decoded<StepResult>(bytes, kResult, "a step result's bytes are not a step result");
}

}  // namespace shoal::wire
