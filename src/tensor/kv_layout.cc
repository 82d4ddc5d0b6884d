#include "tensor/kv_layout.h"

#include <fmt/format.h>

namespace shoal {

std::string KvLayout::id() const {
  return fmt::format("v1/{}/h{}x{}", dtype == KvDType::kBf16 ? "bf16" : "f32", kv_heads, head_dim);
}

}  // namespace shoal
