#include "comm/add_parts.h"

#include <cstring>

namespace shoal::comm {
namespace {

using Four = float __attribute__((vector_size(16)));

Four load(const float* from) {
  Four v;
  std::memcpy(&v, from, sizeof v);
  return v;
}
void store(float* to, Four v) { std::memcpy(to, &v, sizeof v); }

}  // namespace

void add_parts(std::span<const float* const> parts, std::int64_t n, float* out) {
  add_parts(parts, n, std::span(&out, 1));
}

void add_parts(std::span<const float* const> parts, std::int64_t n, std::span<float* const> outs) {
  const std::size_t count = parts.size();
  std::int64_t i = 0;
  // 64 bytes of each part at a time: the sums stay in registers whatever the number of parts.
  for (; i + 16 <= n; i += 16) {
    Four a = load(parts[0] + i), b = load(parts[0] + i + 4);
    Four c = load(parts[0] + i + 8), d = load(parts[0] + i + 12);
    for (std::size_t p = 1; p < count; ++p) {
      const float* part = parts[p] + i;
      a += load(part);
      b += load(part + 4);
      c += load(part + 8);
      d += load(part + 12);
    }
    for (float* out : outs) {
      store(out + i, a);
      store(out + i + 4, b);
      store(out + i + 8, c);
      store(out + i + 12, d);
    }
  }
  for (; i < n; ++i) {
    float sum = parts[0][i];
    for (std::size_t p = 1; p < count; ++p) sum += parts[p][i];
    for (float* out : outs) out[i] = sum;
  }
}

}  // namespace shoal::comm
