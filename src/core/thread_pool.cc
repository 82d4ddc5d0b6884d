#include "core/thread_pool.h"

#include <pthread.h>
#include <sched.h>

#include <algorithm>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace shoal {
namespace {

void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

std::vector<int> allowed_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof(set), &set) == 0) {
    for (int core = 0; core < CPU_SETSIZE; ++core) {
      if (CPU_ISSET(core, &set)) cores.push_back(core);
    }
  }
  return cores;
}

// Cores of quota in one cgroup v2 `cpu.max` or v1 `cpu.cfs_*` file pair; 0 where unlimited or unreadable.
int quota_of(const std::string& folder) {
  double quota = 0;
  double period = 0;
  if (std::ifstream v2(folder + "/cpu.max"); v2) {
    std::string first;
    v2 >> first >> period;
    if (first == "max") return 0;
    std::istringstream(first) >> quota;
  } else {
    std::ifstream v1_quota(folder + "/cpu.cfs_quota_us");
    std::ifstream v1_period(folder + "/cpu.cfs_period_us");
    v1_quota >> quota;
    v1_period >> period;
  }
  if (quota <= 0 || period <= 0) return 0;
  // Rounded down: one thread over the quota and the kernel throttles the whole group in lock step.
  return std::max(1, static_cast<int>(quota / period));
}

// The quota that binds this process: the smallest over its cgroup and all parents of it.
int cgroup_quota() {
  int smallest = 0;
  auto take = [&](const std::string& folder) {
    const int cores = quota_of(folder);
    if (cores > 0) smallest = smallest == 0 ? cores : std::min(smallest, cores);
  };
  std::ifstream membership("/proc/self/cgroup");
  for (std::string line; std::getline(membership, line);) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (!controllers.empty() && controllers.find("cpu") == std::string::npos) continue;
    const std::string root = controllers.empty() ? "/sys/fs/cgroup" : "/sys/fs/cgroup/" + controllers;
    for (std::string path = line.substr(second + 1);; path.resize(path.find_last_of('/'))) {
      take(root + path);
      if (path.empty() || path == "/" || path.find('/') == std::string::npos) break;
    }
    take(root);
  }
  return smallest;
}

}  // namespace

int usable_cores() {
  const int affinity = std::max<int>(1, static_cast<int>(allowed_cores().size()));
  const int quota = cgroup_quota();
  return quota > 0 ? std::min(affinity, quota) : affinity;
}

void flush_denormals_here() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);  // bit 15 flushes results, bit 6 operands
#endif
}

bool pinning_is_safe(int threads) {
  const int affinity = static_cast<int>(allowed_cores().size());
  const int quota = cgroup_quota();
  return threads == affinity && (quota == 0 || quota >= affinity);
}

ThreadPool::ThreadPool(Options options) : spin_(options.spin) {
  const bool pin = options.pin && options.threads > 1 && pinning_is_safe(options.threads);
  if (options.threads > usable_cores()) spin_ = std::chrono::microseconds(0);
  for (int thread = 1; thread < options.threads; ++thread) {
    workers_.emplace_back([this, thread, pin] { work(thread, pin); });
  }
}

ThreadPool::~ThreadPool() {
  stop_.store(true, std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_erased(Job job, void* context) {
  if (workers_.empty()) {
    job(context, 0);
    return;
  }
  job_ = job;
  context_ = context;
  running_.store(static_cast<int>(workers_.size()), std::memory_order_relaxed);
  round_.fetch_add(1, std::memory_order_release);
  round_.notify_all();
  run_caught(job, context, 0);
  const auto give_up = std::chrono::steady_clock::now() + spin_;
  for (int left; (left = running_.load(std::memory_order_acquire)) != 0;) {
    if (std::chrono::steady_clock::now() < give_up) {
      pause_briefly();
    } else {
      running_.wait(left, std::memory_order_acquire);
    }
  }
  if (failed_.load(std::memory_order_relaxed)) {
    failed_.store(false, std::memory_order_relaxed);
    std::rethrow_exception(std::exchange(error_, nullptr));
  }
}

void ThreadPool::run_caught(Job job, void* context, int thread) noexcept {
  try {
    job(context, thread);
  } catch (...) {
    // The caller reads it after this thread's completion.
    if (!failed_.exchange(true, std::memory_order_relaxed)) error_ = std::current_exception();
  }
}

bool ThreadPool::wait_for_round(std::uint32_t seen) {
  const auto give_up = std::chrono::steady_clock::now() + spin_;
  while (round_.load(std::memory_order_acquire) == seen) {
    // The clock is read once per 64 pauses: a read costs as much as the pause itself.
    bool spinning = spin_.count() > 0 && std::chrono::steady_clock::now() < give_up;
    for (int i = 0; spinning && i < 64 && round_.load(std::memory_order_relaxed) == seen; ++i)
      pause_briefly();
    if (!spinning) round_.wait(seen, std::memory_order_acquire);
  }
  return !stop_.load(std::memory_order_relaxed);
}

void ThreadPool::work(int thread, bool pin) {
  if (pin) {
    const std::vector<int> cores = allowed_cores();
    if (static_cast<std::size_t>(thread) < cores.size()) {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(cores[static_cast<std::size_t>(thread)], &set);
      pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
    }
  }
  flush_denormals_here();
  for (std::uint32_t seen = 0; wait_for_round(seen);) {
    ++seen;
    run_caught(job_, context_, thread);
    if (running_.fetch_sub(1, std::memory_order_acq_rel) == 1) running_.notify_all();
  }
}

}  // namespace shoal
