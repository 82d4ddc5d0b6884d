#include "serving/generate_request.h"

#include <fmt/format.h>

#include <limits>
#include <random>

namespace shoal::serving {
namespace {

std::uint64_t drawn_seed() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

Status outside_vocabulary(const char* field, TokenId id, std::int64_t vocabulary) {
  return Status(ErrorCode::kInvalidArgument,
                fmt::format("{} names token {}; this model has tokens 0 to {}", field, id, vocabulary - 1),
                field);
}

}  // namespace

Expected<engine::GenerateRequest> make_generate_request(const wire::CommonFields& fields,
                                                        std::vector<TokenId> prompt,
                                                        std::int64_t vocabulary) {
  const wire::SamplingFields& from = fields.sampling;
  auto inside = [vocabulary](TokenId id) { return id >= 0 && id < vocabulary; };
  for (const auto& [id, bias] : from.logit_bias) {
    if (!inside(id)) return outside_vocabulary("logit_bias", id, vocabulary);
  }
  for (const TokenId id : from.stop_token_ids) {
    if (!inside(id)) return outside_vocabulary("stop_token_ids", id, vocabulary);
  }

  engine::GenerateRequest request;
  request.rid = fields.rid;
  request.prompt = std::move(prompt);
  request.n = from.n;
  request.max_tokens = from.max_tokens.value_or(std::numeric_limits<std::int32_t>::max());
  request.stop = from.stop;
  request.stop_token_ids = from.stop_token_ids;
  request.ignore_eos = from.ignore_eos;
  request.skip_special_tokens = from.skip_special_tokens;
  request.cache_salt = fields.cache_salt;
  request.arrival = now();

  SamplingParams& to = request.sampling;
  to.temperature = static_cast<float>(from.temperature);
  to.top_k = from.top_k;
  to.top_p = static_cast<float>(from.top_p);
  to.min_p = static_cast<float>(from.min_p);
  to.repetition_penalty = static_cast<float>(from.repetition_penalty);
  to.frequency_penalty = static_cast<float>(from.frequency_penalty);
  to.presence_penalty = static_cast<float>(from.presence_penalty);
  to.logit_bias = from.logit_bias;
  to.seed = from.seed ? static_cast<std::uint64_t>(*from.seed) : drawn_seed();
  to.min_tokens = from.min_tokens;
  to.logprobs = from.logprobs ? from.top_logprobs : -1;
  return request;
}

}  // namespace shoal::serving
