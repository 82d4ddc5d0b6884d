// Loops that do nothing but one instruction, in registers: the rate nothing can exceed.
//
// Thread-safety: pure; any number of threads.
// Invariants: enough independent chains to hide the instruction's latency. The compiler can neither fold nor
//   drop them: the accumulators pass through empty assembly.

#pragma once

#include <cstdint>

namespace shoal::kernels {

// Runs `rounds` rounds and returns the operations done, two for a multiply and add.
using RateLoop = double (*)(std::int64_t rounds);

double rate_fma_scalar(std::int64_t rounds);
double rate_fma_avx2(std::int64_t rounds);
double rate_int8_avx2(std::int64_t rounds);
double rate_fma_avx512(std::int64_t rounds);
double rate_int8_avx512(std::int64_t rounds);
double rate_bf16_avx512bf16(std::int64_t rounds);
double rate_bf16_amx(std::int64_t rounds);
double rate_int8_amx(std::int64_t rounds);

}  // namespace shoal::kernels
