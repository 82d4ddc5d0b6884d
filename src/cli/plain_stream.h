// What bytes between two threads of this machine take at best: through one TCP connection, with nothing else
// to be done, and copied in memory. The figures that a handover of KV is measured by, in the same run.
//
// Thread-safety: one thread; the stream has another one for its other end while it runs.
// Errors: kUnavailable or kDeadline where the connection fails.

#pragma once

#include <cstdint>

#include "core/expected.h"

namespace shoal::cli {

struct StreamFigures {
  double gb_per_s = 0;
  double cpu_per_gb = 0;  // seconds, of both ends
};

// A stream of so many bytes over the loopback interface, each end with one buffer of 128 KiB, as iperf3's.
Expected<StreamFigures> measure_plain_stream(std::uint64_t bytes);

// Bytes copied by one thread, to memory that was touched before.
StreamFigures measure_copy(std::uint64_t bytes);

// CPU seconds of this process so far.
double process_cpu_seconds();

}  // namespace shoal::cli
