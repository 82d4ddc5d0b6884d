#include "kernels/isa.h"

#include <fmt/format.h>

#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace shoal::kernels {
namespace {

#if defined(__x86_64__)
struct CpuId {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

CpuId cpu_id(unsigned leaf, unsigned subleaf) {
  CpuId id;
  if (__get_cpuid_count(leaf, subleaf, &id.a, &id.b, &id.c, &id.d) == 0) return {};
  return id;
}

bool bit(unsigned word, int index) { return (word >> index & 1U) != 0; }

// Register states the operating system saves.
std::uint64_t enabled_states() {
  if (!bit(cpu_id(1, 0).c, 27)) return 0;  // OSXSAVE
  unsigned low = 0;
  unsigned high = 0;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return std::uint64_t{high} << 32 | low;
}

// Linux gives the 8 KiB of tile state only to processes that ask.
bool tile_permission() {
  constexpr long kGetPermission = 0x1022;
  constexpr long kRequestPermission = 0x1023;
  constexpr long kTileData = 18;
  if (::syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) return false;
  unsigned long granted = 0;
  return ::syscall(SYS_arch_prctl, kGetPermission, &granted) == 0 && (granted >> kTileData & 1UL) != 0;
}

struct Found {
  Isa isa = Isa::kScalar;
  bool bf16_dot = false;
};

Found look() {
  Found found;
  const CpuId base = cpu_id(1, 0);
  const CpuId more = cpu_id(7, 0);
  const CpuId more1 = cpu_id(7, 1);
  const std::uint64_t states = enabled_states();
  const bool ymm = (states & 0x6) == 0x6;
  const bool zmm = (states & 0xe6) == 0xe6;
  const bool tiles = (states & 0x60000) == 0x60000;
  // FMA, F16C, AVX; AVX2, BMI2.
  if (!ymm || !bit(base.c, 12) || !bit(base.c, 29) || !bit(base.c, 28) || !bit(more.b, 5) || !bit(more.b, 8))
    return found;
  found.isa = Isa::kAvx2;
  // F, DQ, BW, VL; VNNI.
  if (!zmm || !bit(more.b, 16) || !bit(more.b, 17) || !bit(more.b, 30) || !bit(more.b, 31) ||
      !bit(more.c, 11))
    return found;
  found.isa = Isa::kAvx512;
  found.bf16_dot = bit(more1.a, 5);
  // AMX: bf16, tile, int8.
  if (found.bf16_dot && tiles && bit(more.d, 22) && bit(more.d, 24) && bit(more.d, 25) && tile_permission())
    found.isa = Isa::kAmx;
  return found;
}
#else
struct Found {
  Isa isa = Isa::kScalar;
  bool bf16_dot = false;
};
Found look() { return {}; }
#endif

const Found& found() {
  static const Found once = look();
  return once;
}

}  // namespace

std::string_view isa_name(Isa isa) {
  switch (isa) {
    case Isa::kScalar:
      return "scalar";
    case Isa::kAvx2:
      return "avx2";
    case Isa::kAvx512:
      return "avx512";
    case Isa::kAmx:
      return "amx";
  }
  return "?";
}

Isa detected_isa() { return found().isa; }
bool has_bf16_dot() { return found().bf16_dot; }

Expected<Isa> chosen_isa() {
  const char* wish = std::getenv("SHOAL_ISA");
  if (wish == nullptr || *wish == '\0') return detected_isa();
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512, Isa::kAmx}) {
    if (isa_name(isa) != wish) continue;
    if (isa <= detected_isa()) return isa;
    return Status(ErrorCode::kUnsupported, fmt::format("SHOAL_ISA asks for {}, this machine gives {} at most",
                                                       wish, isa_name(detected_isa())));
  }
  return Status(ErrorCode::kInvalidArgument,
                fmt::format("SHOAL_ISA is '{}'; known: scalar, avx2, avx512, amx", wish));
}

}  // namespace shoal::kernels
