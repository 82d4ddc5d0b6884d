// Model::forward(): the way of one batch through all layers.

#include <algorithm>
#include <cassert>
#include <cmath>
#include <cstring>

#include "core/clock.h"
#include "kernels/attention.h"
#include "kernels/dequantise.h"
#include "kernels/elementwise.h"
#include "model/rank_model.h"

namespace shoal::model {

namespace {

using Spans = std::vector<kernels::AttentionSpan>;

void embed(const kernels::Context& context, const formats::ModelTensor& embedding, float scale,
           const std::vector<TokenId>& tokens, MatrixView<float> x) {
  const std::int64_t stride = row_bytes(embedding.type, embedding.row_length());
  context.pool->parallel_for(x.rows, 8, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t row = begin; row < end; ++row) {
      const TokenId token = tokens[static_cast<std::size_t>(row)];
      assert(token >= 0 && token < embedding.rows());
      kernels::dequantise_row(embedding.type, embedding.bytes.data() + token * stride, x.columns, x.row(row));
      if (scale == 1) continue;
      for (std::int64_t i = 0; i < x.columns; ++i) x.row(row)[i] *= scale;
    }
  });
}

void spans_of_group(const Batch& batch, std::size_t group, Spans& out) {
  out.clear();
  for (const BatchSpan& span : batch.spans) {
    out.push_back({span.first_row, span.rows, span.start, span.slots[group]});
  }
}

// The parts of the batch's spans whose logits are wanted: nothing reads the last layer's other rows.
void spans_of_rows(const Spans& spans, const std::vector<std::int32_t>& rows, Spans& out) {
  out.clear();
  auto span = spans.begin();
  for (const std::int32_t row : rows) {
    while (row >= span->first_row + span->rows) ++span;
    if (!out.empty() && out.back().first_row + out.back().rows == row && row > span->first_row) {
      ++out.back().rows;
    } else {
      out.push_back({row, 1, span->start + row - span->first_row, span->slots});
    }
  }
}

// The parts of a coordinate's spans whose logits are wanted. The query of a row alone goes to the pages that
// it sees, whatever the plan says of the whole span's.
void wanted_spans_of(const std::vector<ContextSpan>& spans, const std::vector<std::int32_t>& rows,
                     std::vector<ContextSpan>& out) {
  out.clear();
  auto span = spans.begin();
  for (const std::int32_t row : rows) {
    while (row >= span->first_row + span->rows) ++span;
    if (!out.empty() && out.back().first_row + out.back().rows == row && row > span->first_row) {
      ++out.back().rows;
      continue;
    }
    out.push_back(*span);
    out.back().first_row = row;
    out.back().rows = 1;
    out.back().start = span->start + row - span->first_row;
    out.back().masked_pages = 0;
  }
  for (ContextSpan& each : out) each.pass_queries |= each.rows == 1;
}

// Of a coordinate's spans, the tokens whose pages are its own.
void own_tokens_of(const std::vector<ContextSpan>& spans, std::int32_t own, Spans& out) {
  out.clear();
  for (const ContextSpan& span : spans) {
    for (std::int32_t row = 0; row < span.rows;) {
      const std::int32_t position = span.start + row;
      const std::int32_t page = position / kPageTokens;
      const std::int32_t n = std::min(span.rows - row, (page + 1) * kPageTokens - position);
      if (span.owners[static_cast<std::size_t>(page)] == own)
        out.push_back({span.first_row + row, n, position, span.slots});
      row += n;
    }
  }
}

// Moves the chosen rows to the front, in place; `rows` ascend. Returns a view of them.
MatrixView<float> compact(MatrixView<float> m, const std::vector<std::int32_t>& rows) {
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto to = static_cast<std::int64_t>(i);
    if (rows[i] == to) continue;
    std::memcpy(m.row(to), m.row(rows[i]), static_cast<std::size_t>(m.columns) * sizeof(float));
  }
  return {m.data, static_cast<std::int64_t>(rows.size()), m.columns, m.stride};
}

MatrixView<float> first_rows(MatrixView<float> m, std::int64_t rows) {
  return {m.data, rows, m.columns, m.stride};
}

// What a block adds to the residual stream, through the norm behind it, where the model has one.
void post_norm(const Pass& pass, const std::vector<float>& weight, MatrixView<float> delta) {
  if (!weight.empty()) kernels::rms_norm(pass.kernels, delta, weight, pass.norm_eps, delta);
}

void cap_logits(const kernels::Context& context, float cap, MatrixView<float> logits) {
  // 4096 tanh are about 40 us.
  constexpr std::int64_t kPiece = 4096;
  const std::int64_t pieces = (logits.columns + kPiece - 1) / kPiece;
  context.pool->parallel_for(logits.rows * pieces, 1, [&](std::int64_t begin, std::int64_t end, int) {
    for (std::int64_t i = begin; i < end; ++i) {
      float* row = logits.row(i / pieces);
      const std::int64_t first = i % pieces * kPiece;
      const std::int64_t last = std::min(first + kPiece, logits.columns);
      for (std::int64_t k = first; k < last; ++k) row[k] = cap * std::tanh(row[k] / cap);
    }
  });
}

}  // namespace

// What all layers of a pass move between coordinates.
void Model::Impl::plan_context(const Batch& batch) {
  const std::int32_t own = peers->context_index();
  for (std::size_t group = 0; group < context_plans.size(); ++group)
    context_plans[group].make(batch.context->groups[group], own, description.kv_groups[group].window,
                              context.strict);
  if (!last_stage()) return;
  const auto group = static_cast<std::size_t>(layers.back().attention.block().kv_group);
  const ContextWork& work = batch.context->groups[group];
  wanted_work.resize(work.size());
  for (std::size_t c = 0; c < work.size(); ++c)
    wanted_spans_of(work[c], batch.context->logit_rows[c], wanted_work[c]);
  wanted_plan.make(wanted_work, own, description.kv_groups[group].window, context.strict);
}

// No token is this coordinate's, but others see its pages or write to them.
void Model::Impl::help(const Batch& batch, std::span<const KvView> pools, const LayerHook& hook) {
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const AttentionLayer& attention = layers[i].attention;
    const auto group = static_cast<std::size_t>(attention.block().kv_group);
    const bool last = i + 1 == layers.size() && last_stage();
    float nothing = 0;
    const MatrixView<float> none(&nothing, 0, attention.qkv_width());
    parallel::ContextAttention::Plan& plan = last ? wanted_plan : context_plans[group];
    const TimePoint began = now();
    attention.begin_across(*context_attention, plan, batch.context->groups[group], none);
    if (hook) {
      attention.receive_across(*context_attention, pools[group]);
      hook(stage.begin + static_cast<std::int32_t>(i));
    }
    attention.attend_across(*context_attention, plan, pools[group], none,
                            {&nothing, 0, attention.heads_width()});
    attention_seconds += seconds_between(began, now());
  }
}

void Model::forward(const Batch& batch, std::span<const KvView> pools, MatrixView<float> logits,
                    const LayerHook& hook) {
  Impl& m = *impl_;
  const std::int64_t rows = batch.rows();
  if (batch.context != nullptr) m.plan_context(batch);
  if (rows == 0) {
    if (batch.context != nullptr) m.help(batch, pools, hook);
    return;
  }
  const std::int64_t hidden = m.description.hidden;
  const Layer& any = m.layers.front();
  const std::int64_t qkv_width = any.attention.qkv_width();
  const std::int64_t heads_width = any.attention.heads_width();
  const std::int64_t gate_up_width = any.feed_forward.gate_up_width();
  // What the ranks of a tensor group add up lies where they all see it.
  float* shared = m.peers == nullptr ? nullptr : m.peers->shared_room(rows * Activations::stride_of(hidden));
  m.activations.begin((shared == nullptr ? 3 : 2) * Activations::bytes_for(rows, hidden) +
                      Activations::bytes_for(rows, qkv_width) + Activations::bytes_for(rows, heads_width) +
                      Activations::bytes_for(rows, gate_up_width));
  MatrixView<float> x = m.activations.take(rows, hidden);  // the residual stream
  MatrixView<float> normed = m.activations.take(rows, hidden);
  MatrixView<float> delta = shared == nullptr
                                ? m.activations.take(rows, hidden)
                                : MatrixView<float>(shared, rows, hidden, Activations::stride_of(hidden));
  const MatrixView<float> qkv = m.activations.take(rows, qkv_width);
  MatrixView<float> heads = m.activations.take(rows, heads_width);
  MatrixView<float> gate_up = m.activations.take(rows, gate_up_width);

  const float eps = m.description.norm_eps;
  const Pass pass{m.context, m.matmul, m.description.ropes, eps, batch.positions, m.peers};
  for (std::size_t group = 0; group < m.spans.size(); ++group) {
    if (batch.context == nullptr) {
      spans_of_group(batch, group, m.spans[group]);
    } else {
      const auto own = static_cast<std::size_t>(m.peers->context_index());
      own_tokens_of(batch.context->groups[group][own], m.peers->context_index(), m.spans[group]);
    }
  }

  if (m.first_stage()) {
    embed(m.context, *m.embedding, m.description.embedding_scale, batch.tokens, x);
  } else {
    m.peers->receive_hidden(x);
  }
  kernels::rms_norm(m.context, x, any.attention_norm, eps, normed);
  for (std::size_t i = 0; i < m.layers.size(); ++i) {
    const Layer& layer = m.layers[i];
    const bool stage_ends = i + 1 == m.layers.size();
    const bool last = stage_ends && m.last_stage();
    const auto group = static_cast<std::size_t>(layer.attention.block().kv_group);
    const Spans* spans = &m.spans[group];

    layer.attention.write(pass, pools[group], *spans, normed, qkv);
    const TimePoint began = now();
    parallel::ContextAttention::Plan* across = nullptr;
    if (batch.context != nullptr) {
      across = last ? &m.wanted_plan : &m.context_plans[group];
      layer.attention.begin_across(*m.context_attention, *across, batch.context->groups[group], qkv);
      if (hook) layer.attention.receive_across(*m.context_attention, pools[group]);
    }
    if (hook) hook(m.stage.begin + static_cast<std::int32_t>(i));
    if (across != nullptr) {
      layer.attention.attend_across(*m.context_attention, *across, pools[group], qkv, heads);
      if (last && batch.logit_rows.empty()) {
        m.attention_seconds += seconds_between(began, now());
        return;
      }
    } else {
      if (last) {
        if (batch.logit_rows.empty()) return;
        spans_of_rows(*spans, batch.logit_rows, m.wanted_spans);
        spans = &m.wanted_spans;
      }
      layer.attention.attend(pass, pools[group], *spans, qkv, heads);
    }
    m.attention_seconds += seconds_between(began, now());
    if (last) {
      x = compact(x, batch.logit_rows);
      heads = compact(heads, batch.logit_rows);
      normed = first_rows(normed, x.rows);
      delta = first_rows(delta, x.rows);
      gate_up = first_rows(gate_up, x.rows);
    }
    layer.attention.project(pass, heads, delta);
    post_norm(pass, layer.attention_post_norm, delta);
    kernels::add_rms_norm(m.context, x, delta, layer.feed_forward_norm, eps, normed);
    layer.feed_forward.apply(pass, normed, gate_up, delta);
    post_norm(pass, layer.feed_forward_post_norm, delta);
    if (stage_ends && !last) {
      kernels::add(m.context, x, delta);  // the next stage norms
      m.peers->send_hidden(x);
      return;
    }
    kernels::add_rms_norm(m.context, x, delta, last ? m.output_norm : m.layers[i + 1].attention_norm, eps,
                          normed);
  }
  if (!m.head) return;
  m.head->apply(m.context, m.matmul, normed, logits);
  if (m.description.final_softcap > 0) cap_logits(m.context, m.description.final_softcap, logits);
}

}  // namespace shoal::model
