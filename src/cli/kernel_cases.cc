#include "cli/kernel_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "formats/synth_weights.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "tensor/buffer.h"

namespace shoal::cli {

namespace {

// Beyond the largest L3 in use, so that every read of weights goes to memory.
constexpr std::size_t kRotatedBytes = std::size_t{768} << 20;
constexpr std::uint64_t kSeed = 20;
constexpr float kSigma = 0.02F;

struct Floats {
  Buffer memory;
  MatrixView<float> view;
};

// [rows, columns] of small random numbers, rows 64-byte aligned, in huge pages like the engine's activations.
Expected<Floats> random_floats(std::int64_t rows, std::int64_t columns) {
  const std::int64_t stride = (columns + 15) / 16 * 16;
  SHOAL_ASSIGN(memory,
               Buffer::allocate(static_cast<std::size_t>(rows * stride) * sizeof(float), "activations"));
  auto* data = memory.as<float>();
  std::mt19937 random(kSeed);
  std::normal_distribution<float> normal;
  std::generate_n(data, rows * stride, [&] { return normal(random); });
  return Floats{std::move(memory), {data, rows, columns, stride}};
}

struct Weights {
  std::vector<kernels::PackedMatrix> copies;
  std::size_t next = 0;

  const kernels::PackedMatrix& rotate() {
    next = (next + 1) % copies.size();
    return copies[next];
  }
};

Expected<std::shared_ptr<Weights>> pack_copies(const kernels::Context& context, DType type,
                                               MatmulShape shape) {
  const std::int64_t stride = row_bytes(type, shape.inputs);
  SHOAL_ASSIGN(source, Buffer::allocate(static_cast<std::size_t>(stride * shape.outputs), "random weights"));
  formats::fill_random(type, kSeed, 0, kSigma, {source.data(), source.size()});
  const kernels::WeightSource rows{
      .type = type, .data = source.data(), .rows = shape.outputs, .columns = shape.inputs, .stride = stride};
  auto weights = std::make_shared<Weights>();
  std::size_t bytes = 0;
  do {
    SHOAL_ASSIGN(packed,
                 kernels::PackedMatrix::pack(std::span(&rows, 1), std::span(&shape.inputs, 1), context));
    bytes += packed.bytes();
    weights->copies.push_back(std::move(packed));
  } while (bytes < kRotatedBytes);
  return weights;
}

// The KV of `layers` layers with shuffled pages, and the new tokens' spans.
struct AttentionData {
  Buffer pool;
  KvView view;
  std::vector<std::int32_t> slots;
  std::vector<std::int32_t> kv_head_of;
  std::vector<kernels::AttentionSpan> spans;
  kernels::AttentionShape shape;
  Floats q;
  Floats out;
};

Expected<std::shared_ptr<AttentionData>> attention_data(const AttentionCaseShape& shape) {
  auto data = std::make_shared<AttentionData>();
  const std::int32_t pages = (shape.depth + shape.rows + kPageTokens - 1) / kPageTokens;
  KvLayout& layout = data->view.layout;
  layout = {
      .layers = 1, .kv_heads = shape.kv_heads, .head_dim = shape.head_dim, .slots = pages * shape.sequences};
  layout.layers = static_cast<std::int32_t>(std::clamp<std::size_t>(
      kRotatedBytes / layout.page_bytes() / static_cast<std::size_t>(layout.slots), 1, 32));
  SHOAL_ASSIGN(pool, Buffer::allocate(layout.pool_bytes(), "KV pool"));
  formats::fill_random(DType::kBF16, kSeed, 0, 1, {pool.data(), pool.size()});
  data->pool = std::move(pool);
  data->view.base = data->pool.data();
  data->slots.resize(static_cast<std::size_t>(layout.slots));
  std::iota(data->slots.begin(), data->slots.end(), 0);
  std::shuffle(data->slots.begin(), data->slots.end(), std::mt19937(kSeed));
  for (std::int32_t s = 0; s < shape.sequences; ++s) {
    data->spans.push_back(
        {.first_row = s * shape.rows,
         .rows = shape.rows,
         .start = shape.depth,
         .slots = std::span(data->slots)
                      .subspan(static_cast<std::size_t>(s * pages), static_cast<std::size_t>(pages))});
  }
  for (std::int32_t h = 0; h < shape.query_heads; ++h) {
    data->kv_head_of.push_back(h * shape.kv_heads / shape.query_heads);
  }
  data->shape.head_dim = shape.head_dim;
  data->shape.query_heads = shape.query_heads;
  data->shape.kv_head_of = data->kv_head_of;
  data->shape.scale = 1 / std::sqrt(static_cast<float>(shape.head_dim));
  const std::int64_t rows = std::int64_t{shape.sequences} * shape.rows;
  const std::int64_t width = std::int64_t{shape.query_heads} * shape.head_dim;
  SHOAL_ASSIGN(q, random_floats(rows, width));
  SHOAL_ASSIGN(out, random_floats(rows, width));
  data->q = std::move(q);
  data->out = std::move(out);
  return data;
}

}  // namespace

Expected<std::vector<KernelCase>> matmul_cases(const kernels::Context& context,
                                               const kernels::Ceilings& ceilings, DType type,
                                               MatmulShape shape, const std::vector<std::int64_t>& rows) {
  SHOAL_ASSIGN(weights, pack_copies(context, type, shape));
  const auto scratch = std::make_shared<kernels::MatmulScratch>();
  std::vector<KernelCase> cases;
  for (const std::int64_t n : rows) {
    SHOAL_ASSIGN(x, random_floats(n, shape.inputs));
    SHOAL_ASSIGN(y, random_floats(n, shape.outputs));
    KernelCase one;
    one.kernel = fmt::format("matmul {}", dtype_name(type));
    one.shape = fmt::format("{} x {}, {} row{}", shape.inputs, shape.outputs, n, n == 1 ? "" : "s");
    one.flops = 2.0 * static_cast<double>(n * shape.inputs * shape.outputs);
    one.bytes = static_cast<double>(weights->copies.front().bytes());
    one.compute = &kernels::ceiling_of(ceilings, type, n);
    one.call = [context, weights, scratch, x = std::make_shared<Floats>(std::move(x)),
                y = std::make_shared<Floats>(std::move(y))] {
      const kernels::MatmulTarget target{&weights->rotate(), y->view};
      kernels::matmul(context, *scratch, x->view, std::span(&target, 1));
    };
    cases.push_back(std::move(one));
  }
  return cases;
}

Expected<KernelCase> attention_case(const kernels::Context& context, const kernels::Ceilings& ceilings,
                                    const AttentionCaseShape& shape) {
  SHOAL_ASSIGN(data, attention_data(shape));
  const double pairs = static_cast<double>(shape.rows) *
                       (shape.depth + (static_cast<double>(shape.rows) + 1) / 2) * shape.sequences;
  KernelCase one;
  one.kernel = shape.rows > 1 ? "attention prefill" : "attention decode";
  one.shape = fmt::format("{} of {} heads of {}, {} x {} new at depth {}", shape.query_heads, shape.kv_heads,
                          shape.head_dim, shape.sequences, shape.rows, shape.depth);
  one.flops = 4.0 * shape.head_dim * shape.query_heads * pairs;
  one.bytes =
      2.0 * sizeof(Bf16) * shape.head_dim * shape.kv_heads * (shape.depth + shape.rows) * shape.sequences;
  one.compute = &kernels::ceiling_of(ceilings, DType::kBF16, shape.rows > 1 ? shape.rows : 1);
  one.call = [context, data] {
    data->shape.layer = (data->shape.layer + 1) % data->view.layout.layers;
    kernels::attention(context, data->view, data->shape, data->spans, data->q.view, data->out.view);
  };
  return one;
}

Expected<std::vector<KernelCase>> elementwise_cases(const kernels::Context& context,
                                                    const kernels::Ceilings& ceilings, std::int64_t rows,
                                                    std::int64_t hidden, std::int64_t ffn) {
  struct Data {
    Floats x, y, delta, gate_up;
    std::vector<float> weight;
    std::vector<std::int32_t> positions;
    kernels::Rope rope;
  };
  constexpr std::int32_t kHeadDim = 64;
  const auto data = std::make_shared<Data>();
  for (Floats* floats : {&data->x, &data->y, &data->delta}) {
    SHOAL_ASSIGN(random, random_floats(rows, hidden));
    *floats = std::move(random);
  }
  SHOAL_ASSIGN(gate_up, random_floats(rows, 2 * ffn));
  data->gate_up = std::move(gate_up);
  data->weight.assign(static_cast<std::size_t>(hidden), 1);
  data->positions.resize(static_cast<std::size_t>(rows));
  std::iota(data->positions.begin(), data->positions.end(), 0);
  for (int i = 0; i < kHeadDim / 2; ++i) {
    data->rope.inverse_frequency.push_back(std::pow(1e4F, -2.0F * static_cast<float>(i) / kHeadDim));
  }

  const kernels::Ceiling* fma = ceilings.find("f32 fma");
  const std::string shape = fmt::format("{} rows of {}", rows, hidden);
  const auto size = static_cast<double>(rows * hidden);
  std::vector<KernelCase> cases;
  cases.push_back({"rms_norm", shape, 4 * size, 2 * 4 * size, fma, [context, data] {
                     kernels::rms_norm(context, data->x.view, data->weight, 1e-5F, data->y.view);
                   }});
  cases.push_back({"add_rms_norm", shape, 5 * size, 4 * 4 * size, fma, [context, data] {
                     kernels::add_rms_norm(context, data->x.view, data->delta.view, data->weight, 1e-5F,
                                           data->y.view);
                   }});
  cases.push_back({"rope", shape, 6 * size, 2 * 4 * size, fma, [context, data] {
                     kernels::apply_rope(context, data->rope, data->y.view, kHeadDim, data->positions);
                   }});
  const MatrixView<float> both = data->gate_up.view;
  const MatrixView<float> gate{both.data, rows, ffn, both.stride};
  const MatrixView<float> up{both.data + ffn, rows, ffn, both.stride};
  // exp and a division beside the two products: about 20 operations.
  cases.push_back({"gated silu", fmt::format("{} rows of {}", rows, ffn),
                   20 * static_cast<double>(rows * ffn), 12 * static_cast<double>(rows * ffn), fma,
                   [context, data, gate, up] {
                     kernels::gated_activation(context, kernels::GatedActivation::kSilu, gate, up, gate);
                   }});
  return cases;
}

}  // namespace shoal::cli
