// The instruction sets a kernel may use, found once at run time.
//
// Thread-safety: any thread; the answer never changes after the first call.
// Invariants: each level includes those below it; AMX also needs the kernel's permission for tile data, asked
//   for here once, before compute threads start.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/expected.h"

namespace shoal::kernels {

enum class Isa : std::uint8_t {
  kScalar,
  kAvx2,    // AVX2, FMA, F16C
  kAvx512,  // F, BW, VL, DQ, VNNI; BF16 where the CPU has it
  kAmx,     // bf16 and int8 tiles beside all of AVX-512
};

std::string_view isa_name(Isa isa);

// The best level this CPU and operating system give.
Isa detected_isa();

// VDPBF16PS, which not every CPU of the kAvx512 level has; all of kAmx do.
bool has_bf16_dot();

// What SHOAL_ISA asks for, or the best. Fails with kUnsupported where the machine lacks what was asked, and
// with kInvalidArgument for an unknown word, naming those it knows.
Expected<Isa> chosen_isa();

}  // namespace shoal::kernels
