// What a model's files say about it: dimensions, rope, attention, and the tensors that must be there. For the
// Llama-like families: one table entry per architecture (architecture.h), the rest is data.
//
// Thread-safety: values and pure functions.
// Ownership: ModelMetadata owns what it holds and outlives the file. Invariants of a ModelMetadata that was
//   read: every dimension is at least 1 and within the kLargest... below, kv_heads divides heads, head_dim
//   and rope.dims are even, rope.dims <= head_dim, floats are finite.
// Errors: kCorrupt where the file contradicts itself, kUnsupported where nothing here can run it; one
//   sentence with the file, the key or tensor, and the reason.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/expected.h"
#include "formats/gguf_file.h"
#include "formats/tensor_table.h"
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

// Of the feed-forward gate.
enum class Activation { kSilu, kGeluTanh };

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
  // Of the layers with a window; absent where all layers share `rope`.
  std::optional<RopeSettings> window_rope;
  Activation activation = Activation::kSilu;

  // Per layer: tokens that a query sees, itself included; 0 where it sees all.
  std::vector<std::int64_t> windows;

  bool tied_embeddings = false;        // no output.weight: token_embd.weight serves twice
  bool attention_bias = false;         // attn_q.bias, attn_k.bias, attn_v.bias
  bool attention_output_bias = false;  // attn_output.bias
  bool qk_norm = false;                // RMS norm of each head of Q and K before rope

  bool post_norms = false;  // post_attention_norm and post_ffw_norm, before the residual sums

  double attention_scale = 0.0;    // on queries times keys; 0: 1 / sqrt(head_dim)
  double attention_softcap = 0.0;  // scores become cap * tanh(score / cap); 0: as they are
  double final_softcap = 0.0;      // the same for logits
  double embedding_scale = 1.0;
  double norm_offset = 0.0;  // added to every stored norm weight: 1 in Hugging Face's Gemma files

  bool has_sliding_window() const;
};

// Reads and judges a GGUF file's metadata. Works on a file with the vocabulary only too (the tensors are
// check_model_tensors' matter); `vocab` then comes from the keys or the tokenizer.
Expected<ModelMetadata> read_model_metadata(const GgufFile& file);
// The same for the first of several files that make up a model: `tensors` are those of all.
Expected<ModelMetadata> read_model_metadata(const GgufFile& file, const TensorTable& tensors);

// The architectures of GGUF files that can be served, for messages: "llama, qwen2, qwen3".
std::string known_architectures();

// Above every model there is, and small enough that no product of two overflows: 1M wide, 16M tokens.
inline constexpr std::uint64_t kLargestLayers = 1024;
inline constexpr std::uint64_t kLargestHeads = 4096;
inline constexpr std::uint64_t kLargestHeadDim = 4096;
inline constexpr std::uint64_t kLargestWidth = std::uint64_t{1} << 20;
inline constexpr std::uint64_t kLargestFeedForward = std::uint64_t{1} << 22;
inline constexpr std::uint64_t kLargestVocab = std::uint64_t{1} << 24;
inline constexpr std::uint64_t kLargestContext = std::uint64_t{1} << 28;

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

// True for the types that weights may have: f32, f16, bf16, q4_0, q4_1, q5_0, q5_1, q8_0, q2_k to q6_k,
// iq4_nl, iq4_xs.
bool weight_type_supported(DType type);

// Every needed tensor is there with its shape and a supported type (f32, f16 or bf16 for vectors), and there
// is none that the forward pass would ignore.
Status check_model_tensors(const TensorTable& tensors, const ModelMetadata& model);
Status check_model_tensors(const GgufFile& file, const ModelMetadata& model);

// The factors of Llama 3.1's rope scaling, [dims / 2]: 1 for wavelengths below original_context / high_freq,
// `factor` above original_context / low_freq, interpolated between.
std::vector<float> llama3_rope_factors(std::int64_t dims, double freq_base, double factor, double low_freq,
                                       double high_freq, std::int64_t original_context);

}  // namespace shoal::formats
