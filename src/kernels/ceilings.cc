#include "kernels/ceilings.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cassert>
#include <cmath>
#include <cstring>

#include "core/clock.h"
#include "kernels/ceilings_kernels.h"
#include "tensor/buffer.h"

namespace shoal::kernels {

namespace {

constexpr int kPasses = 5;
// Beyond any cache: server parts share up to half a GiB of L3.
constexpr std::size_t kReadBytes = std::size_t{1} << 30;
constexpr std::size_t kReadBytesOfSmall = std::size_t{256} << 20;
constexpr std::int64_t kSmallMachine = std::int64_t{8} << 30;
// One stream does not keep a core's line buffers full: two to sixteen read 15 to 20 % more.
constexpr std::size_t kStreams = 4;
constexpr std::size_t kGrain = kStreams * 64;
// Long enough that starting the threads does not count, short enough that neighbours leave one of five alone.
constexpr double kLoopSeconds = 4e-3;
constexpr int kMostAlone = 8;

// Beyond what the hardware fetches by itself: 1 to 2 KiB ahead of four streams read a fifth more.
constexpr std::size_t kFetchAhead = 1536;

// Adds up words of all lines of [begin, begin + streams * stream_bytes). The sum keeps the loads alive.
std::uint64_t read_streams(const std::byte* begin, std::size_t stream_bytes) {
  using Line [[gnu::vector_size(64), gnu::aligned(64), gnu::may_alias]] = std::uint64_t;
  Line sums[kStreams] = {};
  for (std::size_t at = 0; at < stream_bytes; at += 64) {
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
      const std::byte* line = begin + stream * stream_bytes + at;
      __builtin_prefetch(line + kFetchAhead);
      sums[stream] += *reinterpret_cast<const Line*>(line);
    }
  }
  std::uint64_t sum = 0;
  for (const Line& line : sums) sum += line[0] ^ line[7];
  return sum;
}

double rate_fma_of(Isa isa, std::int64_t rounds) {
  switch (isa) {
    case Isa::kScalar:
      return rate_fma_scalar(rounds);
    case Isa::kAvx2:
      return rate_fma_avx2(rounds);
    default:
      return rate_fma_avx512(rounds);
  }
}

// Best of five of work / seconds, for work that `run` gives for one thread.
template <class Run>
double best_alone(ThreadPool& pool, int chosen, const Run& run) {
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    double rate = 0;
    pool.run([&](int thread) {
      if (thread != chosen) return;
      const TimePoint begin = now();
      const double work = run(thread);
      rate = work / seconds_between(begin, now());
    });
    best = std::max(best, rate);
  }
  return best;
}

template <class Run>
double best_together(ThreadPool& pool, const Run& run) {
  double best = 0;
  std::vector<double> work(static_cast<std::size_t>(pool.size()));
  for (int pass = 0; pass < kPasses; ++pass) {
    const TimePoint begin = now();
    pool.run([&](int thread) { work[static_cast<std::size_t>(thread)] = run(thread); });
    const double seconds = seconds_between(begin, now());
    double sum = 0;
    for (const double part : work) sum += part;
    best = std::max(best, sum / seconds);
  }
  return best;
}

template <class Run>
Ceiling measure(ThreadPool& pool, std::string name, double unit, const Run& run) {
  Ceiling ceiling{std::move(name), {}, 0};
  const int alone = std::min(pool.size(), kMostAlone);
  for (int i = 0; i < alone; ++i) {
    ceiling.alone.push_back(best_alone(pool, i * pool.size() / alone, run) / unit);
  }
  ceiling.together = pool.size() == 1 ? ceiling.alone.front() : best_together(pool, run) / unit;
  return ceiling;
}

std::size_t default_read_bytes() {
  const std::int64_t memory = std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  return memory < kSmallMachine ? kReadBytesOfSmall : kReadBytes;
}

Expected<Ceiling> measure_read(ThreadPool& pool, std::size_t bytes) {
  SHOAL_ASSIGN(buffer, Buffer::allocate(bytes, "the bandwidth measurement"));
  const std::size_t share = bytes / static_cast<std::size_t>(pool.size()) / kGrain * kGrain;
  const auto part = [&](int thread) { return buffer.data() + static_cast<std::size_t>(thread) * share; };
  // Written first, each part by its reader: pages that were never touched are all one page of zeros.
  pool.run([&](int thread) { std::memset(part(thread), 1, share); });
  std::atomic<std::uint64_t> sink{0};
  return measure(pool, "read", 1e9, [&](int thread) {
    sink += read_streams(part(thread), share / kStreams);
    return static_cast<double>(share);
  });
}

template <class Loop>
Ceiling measure_compute(ThreadPool& pool, std::string name, const Loop& loop) {
  // Rounds that take kLoopSeconds, found on the calling thread.
  std::int64_t rounds = 256;
  for (;;) {
    const TimePoint begin = now();
    loop(rounds);
    if (seconds_between(begin, now()) >= kLoopSeconds || rounds > (std::int64_t{1} << 40)) break;
    rounds *= 2;
  }
  return measure(pool, std::move(name), 1e12, [&](int) { return loop(rounds); });
}

}  // namespace

double rate_fma_scalar(std::int64_t rounds) {
  constexpr int kChains = 8;
  float sums[kChains] = {};
  float x = 0x1p-20F;
  for (std::int64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 8
    for (float& sum : sums) {
      sum += x * x;
#if defined(__x86_64__)
      asm volatile("" : "+x"(sum), "+x"(x));
#else
      asm volatile("" : "+w"(sum), "+w"(x));
#endif
    }
  }
  return 2.0 * kChains * static_cast<double>(rounds);
}

double Ceiling::scaling() const {
  return alone.empty() ? 1 : together / *std::max_element(alone.begin(), alone.end());
}

const Ceiling* Ceilings::find(std::string_view name) const {
  if (name == read.name) return &read;
  const auto found =
      std::find_if(compute.begin(), compute.end(), [&](const Ceiling& c) { return c.name == name; });
  return found == compute.end() ? nullptr : &*found;
}

Expected<Ceilings> measure_ceilings(const Context& context, std::size_t read_bytes) {
  assert(context.pool != nullptr);
  ThreadPool& pool = *context.pool;
  SHOAL_ASSIGN(read, measure_read(pool, read_bytes > 0 ? read_bytes : default_read_bytes()));
  Ceilings ceilings{std::move(read), {}};
  const auto add = [&](const char* name, const auto& loop) {
    ceilings.compute.push_back(measure_compute(pool, name, loop));
  };
  add("f32 fma", [&](std::int64_t rounds) { return rate_fma_of(context.isa, rounds); });
  if (context.isa >= Isa::kAvx512) {
    add("int8 dot", rate_int8_avx512);
    if (has_bf16_dot()) add("bf16 dot", rate_bf16_avx512bf16);
  } else if (context.isa == Isa::kAvx2) {
    add("int8 dot", rate_int8_avx2);
  }
  if (context.isa == Isa::kAmx) {
    add("amx bf16", rate_bf16_amx);
    add("amx int8", rate_int8_amx);
  }
  return ceilings;
}

const Ceiling& ceiling_of(const Ceilings& ceilings, DType type, std::int64_t rows) {
  const bool half = type == DType::kBF16;
  const bool coded = is_quantised(type);
  const Ceiling* ceiling = ceilings.find("f32 fma");
  const auto consider = [&](bool applies, const char* name) {
    const Ceiling* other = applies ? ceilings.find(name) : nullptr;
    if (other != nullptr && other->together > ceiling->together) ceiling = other;
  };
  consider(coded, "int8 dot");
  // Not always the faster one: VDPBF16PS starts every second cycle on some servers, FMA twice a cycle.
  consider(half, "bf16 dot");
  // A tile has 16 rows.
  consider((half || coded) && rows >= 16, "amx bf16");
  assert(ceiling != nullptr);
  return *ceiling;
}

}  // namespace shoal::kernels
