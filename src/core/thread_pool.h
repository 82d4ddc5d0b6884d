// The compute threads of one rank: they run one function together, then wait for the next.
//
// Thread-safety: run() belongs to one thread, the rank's executor, which takes part as thread 0.
// Ownership: owns threads 1..size-1; the destructor ends and joins them.
// Invariants:
//   1. run() returns only after every thread has finished the function; what they wrote is then visible.
//   2. Workers spin for `spin` after a job, then sleep on a futex: back-to-back kernels of one step cost
//      about a microsecond to hand over, an idle server costs nothing.
//   3. An exception on any thread reaches the caller of run(), after all have finished.
//   4. With more compute threads than usable cores (other ranks counted), spin is zero.

#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>
#include <vector>

namespace shoal {

// Cores this process may use: min(affinity mask, cgroup CPU quota rounded down), at least 1.
int usable_cores();

// Whether `threads` compute threads may each be bound to a core: only where they are as many as the affinity
// mask has cores and no CPU quota is below that. With fewer, others (a second server under the same mask, a
// container's neighbours) would be bound to the same first cores while the rest stay idle.
bool pinning_is_safe(int threads);

// Makes denormals zero on the calling thread: a denormal operand costs a kernel 4 to 60 times its time. Pool
// threads do it themselves; the thread that calls run() must.
void flush_denormals_here();

class ThreadPool {
 public:
  struct Options {
    int threads = 1;
    // 200 us covers the gaps between the kernels of a step, not those between steps.
    std::chrono::microseconds spin{200};
    // Binds thread i to the i-th allowed core, where pinning_is_safe().
    bool pin = true;
  };

  explicit ThreadPool(Options options);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int size() const { return static_cast<int>(workers_.size()) + 1; }

  // Calls f(thread_index) on every thread, 0 <= thread_index < size(). f must not call run().
  // Where f throws, the others still finish; then the exception that came first is thrown here.
  template <typename F>
  void run(F&& f) {
    run_erased(
        [](void* context, int thread) { (*static_cast<std::remove_reference_t<F>*>(context))(thread); },
        const_cast<void*>(static_cast<const void*>(&f)));
  }

  // Deals [0, n) in pieces of `grain` to whoever is free. f(begin, end, thread_index). Where f throws, that
  // thread takes no more pieces; else as run().
  template <typename F>
  void parallel_for(std::int64_t n, std::int64_t grain, F&& f) {
    if (n <= 0) return;
    if (n <= grain || size() == 1) {
      f(std::int64_t{0}, n, 0);
      return;
    }
    std::atomic<std::int64_t> next{0};
    run([&](int thread) {
      for (;;) {
        const std::int64_t begin = next.fetch_add(grain, std::memory_order_relaxed);
        if (begin >= n) return;
        f(begin, begin + grain < n ? begin + grain : n, thread);
      }
    });
  }

 private:
  using Job = void (*)(void* context, int thread);

  void run_erased(Job job, void* context);
  void run_caught(Job job, void* context, int thread) noexcept;
  void work(int thread, bool pin);
  bool wait_for_round(std::uint32_t round);

  // One 64-byte line each: the hand-over must not share a line with the completions.
  alignas(64) std::atomic<std::uint32_t> round_{0};
  alignas(64) std::atomic<int> running_{0};
  alignas(64) std::atomic<bool> stop_{false};
  Job job_ = nullptr;
  void* context_ = nullptr;
  std::atomic<bool> failed_{false};
  std::exception_ptr error_;  // of whoever set failed_; read once all have finished
  std::chrono::microseconds spin_;
  std::vector<std::thread> workers_;
};

}  // namespace shoal
