#include "tensor/dtype.h"

#include <array>

namespace shoal {
namespace {

struct Entry {
  DType type;
  std::string_view name;
  std::int64_t elements;
  std::int64_t bytes;
};

// Bytes: 16-bit scale = 2; K-quants add packed 6- or 8-bit sub-scales per 16 or 32 elements.
constexpr std::array kTable = {
    Entry{DType::kF32, "f32", 1, 4},
    Entry{DType::kF16, "f16", 1, 2},
    Entry{DType::kQ4_0, "q4_0", 32, 2 + 16},
    Entry{DType::kQ4_1, "q4_1", 32, 2 + 2 + 16},
    Entry{DType::kQ5_0, "q5_0", 32, 2 + 4 + 16},
    Entry{DType::kQ5_1, "q5_1", 32, 2 + 2 + 4 + 16},
    Entry{DType::kQ8_0, "q8_0", 32, 2 + 32},
    Entry{DType::kQ2_K, "q2_k", 256, 16 + 64 + 2 + 2},
    Entry{DType::kQ3_K, "q3_k", 256, 32 + 64 + 12 + 2},
    Entry{DType::kQ4_K, "q4_k", 256, 2 + 2 + 12 + 128},
    Entry{DType::kQ5_K, "q5_k", 256, 2 + 2 + 12 + 32 + 128},
    Entry{DType::kQ6_K, "q6_k", 256, 128 + 64 + 16 + 2},
    Entry{DType::kIQ4_NL, "iq4_nl", 32, 2 + 16},
    Entry{DType::kIQ4_XS, "iq4_xs", 256, 2 + 2 + 4 + 128},
    Entry{DType::kI8, "i8", 1, 1},
    Entry{DType::kI32, "i32", 1, 4},
    Entry{DType::kBF16, "bf16", 1, 2},
};

const Entry& entry(DType type) {
  for (const Entry& e : kTable) {
    if (e.type == type) return e;
  }
  return kTable[0];
}

}  // namespace

std::optional<DType> dtype_from_gguf(std::uint32_t type_id) {
  for (const Entry& e : kTable) {
    if (static_cast<std::uint32_t>(e.type) == type_id) return e.type;
  }
  return std::nullopt;
}

std::string_view dtype_name(DType type) { return entry(type).name; }

std::optional<DType> dtype_from_name(std::string_view name) {
  for (const Entry& e : kTable) {
    if (e.name == name) return e.type;
  }
  return std::nullopt;
}

std::int64_t block_elements(DType type) { return entry(type).elements; }
std::int64_t block_bytes(DType type) { return entry(type).bytes; }
bool is_quantised(DType type) { return entry(type).elements > 1; }

}  // namespace shoal
