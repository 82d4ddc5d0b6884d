// What a GGUF file says about its model: dimensions, rope, attention, and the tensors that must be there. For
// the Llama-like family: one table entry per architecture, the rest is data.
//
// Thread-safety: values and pure functions.
// Ownership: ModelMetadata owns what it holds and outlives the file.
// Invariants of a ModelMetadata that was read: every dimension is at least 1 and below kLargest (in the .cc),
//   kv_heads divides heads, head_dim and rope.dims are even, rope.dims <= head_dim, floats are finite.
// Errors: kCorrupt where the file contradicts itself, kUnsupported where nothing here can run it; one
// sentence
//   with the file, the key or tensor, and the reason.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/expected.h"
#include "formats/gguf_file.h"
#include "tensor/dtype.h"

namespace shoal::formats {

// Which two elements of a head turn together.
enum class RopeStyle {
  kInterleaved,  // 2i and 2i + 1: llama files store the rows of Q and K in this order
  kHalfSplit,    // i and i + dims / 2: the qwen family, as in Hugging Face's layout
};

enum class RopeScaling {
  kNone,
  kLinear,  // positions divided by factor
  kYarn,    // low frequencies divided by factor, high ones kept, a ramp between; logits scaled by attn_factor
  kLlama3,  // each pair's frequency divided by its own entry of `factors`
};

struct RopeSettings {
  RopeStyle style = RopeStyle::kInterleaved;
  double freq_base = 10000.0;
  std::int64_t dims = 0;  // elements of a head that turn, the first ones
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;                // kLinear, kYarn
  std::int64_t original_context = 0;  // kYarn: tokens the model was trained on before stretching
  // kYarn. The factor on queries and keys is attn_factor x (1 + 0.1 ln(factor)).
  double attn_factor = 1.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  std::vector<float> factors;  // kLlama3: [dims / 2]
};

struct ModelMetadata {
  std::string architecture;  // "llama"
  std::string name;          // general.name, may be empty

  std::int64_t layers = 0;
  std::int64_t dim = 0;  // width of the residual stream
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t ffn_dim = 0;
  std::int64_t vocab = 0;
  std::int64_t context = 0;  // tokens
  double rms_eps = 0.0;
  RopeSettings rope;

  // Per layer: tokens that a query sees, itself included; 0 where it sees all.
  std::vector<std::int64_t> windows;

  bool tied_embeddings = false;        // no output.weight: token_embd.weight serves twice
  bool attention_bias = false;         // attn_q.bias, attn_k.bias, attn_v.bias
  bool attention_output_bias = false;  // attn_output.bias
  bool qk_norm = false;                // RMS norm of each head of Q and K before rope

  bool has_sliding_window() const;
};

// Reads and judges the metadata. Works on a file with the vocabulary only too (the tensors are
// check_model_tensors' matter); `vocab` then comes from the keys or the tokenizer.
Expected<ModelMetadata> read_model_metadata(const GgufFile& file);

// The architectures that read_model_metadata knows, for messages: "llama, qwen2, qwen3".
std::string known_architectures();

enum class ModelPart { kEmbedding, kAttention, kFeedForward, kNorm, kOutput };

inline constexpr std::size_t kModelParts = 5;

struct TensorNeed {
  std::string name;
  std::vector<std::int64_t> dims;  // in the file's order, length of a row first
  ModelPart part = ModelPart::kNorm;
  std::int64_t layer = -1;  // -1 for what belongs to no layer
};

// Every tensor that the forward pass reads, in the order of its use. rope_freqs.weight, which
// read_model_metadata reads itself, is not among them.
std::vector<TensorNeed> needed_tensors(const ModelMetadata& model);

// True for the types that weights may have: f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q4_k, q5_k, q6_k.
bool weight_type_supported(DType type);

// Every needed tensor is there with its shape and a supported type (f32, f16 or bf16 for vectors), and there
// is none that the forward pass would ignore.
Status check_model_tensors(const GgufFile& file, const ModelMetadata& model);

// The factors of Llama 3.1's rope scaling, [dims / 2]: 1 for wavelengths below original_context / high_freq,
// `factor` above original_context / low_freq, interpolated between.
std::vector<float> llama3_rope_factors(std::int64_t dims, double freq_base, double factor, double low_freq,
                                       double high_freq, std::int64_t original_context);

}  // namespace shoal::formats
