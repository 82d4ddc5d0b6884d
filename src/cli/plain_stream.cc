#include "cli/plain_stream.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <thread>
#include <vector>

#include "comm/socket.h"
#include "core/clock.h"

namespace shoal::cli {
namespace {

constexpr std::size_t kBuffer = std::size_t{128} << 10;
// More than any cache holds, less than a machine misses.
constexpr std::uint64_t kMostCopied = std::uint64_t{256} << 20;
constexpr std::chrono::seconds kPatience{60};

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

Status receive_all(comm::Socket& socket, std::uint64_t bytes) {
  std::vector<std::byte> buffer(kBuffer);
  const TimePoint deadline = now() + kPatience;
  while (bytes > 0) {
    SHOAL_ASSIGN(n, socket.receive_some(std::span(buffer).first(std::min<std::uint64_t>(kBuffer, bytes))));
    bytes -= n;
    if (n == 0) SHOAL_TRY(socket.await_readable(deadline));
  }
  return {};
}

Status send_all(comm::Socket& socket, std::uint64_t bytes) {
  const std::vector<std::byte> buffer(kBuffer, std::byte{1});
  const TimePoint deadline = now() + kPatience;
  while (bytes > 0) {
    SHOAL_ASSIGN(n, socket.send_some(std::span(buffer).first(std::min<std::uint64_t>(kBuffer, bytes))));
    bytes -= n;
    if (n == 0) SHOAL_TRY(socket.await_writable(deadline));
  }
  return {};
}

// Seconds and CPU seconds as figures of so many bytes.
StreamFigures figures_of(std::uint64_t bytes, double seconds, double cpu) {
  const double gigabytes = static_cast<double>(bytes) / 1e9;
  return {gigabytes / seconds, cpu / gigabytes};
}

}  // namespace

double process_cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

Expected<StreamFigures> measure_plain_stream(std::uint64_t bytes) {
  SHOAL_ASSIGN(listener, comm::Listener::open("127.0.0.1", 0));
  SHOAL_ASSIGN(sender, comm::connect_to({"127.0.0.1", listener.port()}, now() + kPatience));
  SHOAL_ASSIGN(receiver, listener.accept(now() + kPatience));
  const double cpu = process_cpu_seconds();
  const TimePoint begin = now();
  Status received;
  std::thread other([&] {
    received = receive_all(receiver, bytes);
    if (!received.ok()) receiver.shut_down();
  });
  const Status sent = send_all(sender, bytes);
  if (!sent.ok()) sender.shut_down();
  other.join();
  SHOAL_TRY(sent);
  SHOAL_TRY(received);
  return figures_of(bytes, seconds_between(begin, now()), process_cpu_seconds() - cpu);
}

StreamFigures measure_copy(std::uint64_t bytes) {
  const std::uint64_t piece = std::min(bytes, kMostCopied);
  const std::vector<std::byte> from(piece, std::byte{1});
  std::vector<std::byte> to(piece, std::byte{2});
  const double cpu = process_cpu_seconds();
  const TimePoint begin = now();
  for (std::uint64_t left = bytes; left > 0;) {
    const std::uint64_t n = std::min(left, piece);
    std::memcpy(to.data(), from.data(), n);
    left -= n;
  }
  return figures_of(bytes, seconds_between(begin, now()), process_cpu_seconds() - cpu);
}

}  // namespace shoal::cli
