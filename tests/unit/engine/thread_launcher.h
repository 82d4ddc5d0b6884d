// Ranks as threads of the test: what `shoal rank` runs, without processes.

#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/shm_meeting.h"
#include "engine/joined_rank.h"
#include "engine/worker_ranks.h"

namespace shoal::engine {

class ThreadLauncher : public RankLauncher {
 public:
  explicit ThreadLauncher(std::string build = "test", LogitsObserver observer = {})
      : build_(std::move(build)), observer_(std::move(observer)) {}
  ~ThreadLauncher() override { join(); }

  // What each rank has beside its step plans.
  void serve_with(std::function<std::shared_ptr<RankService>()> make) { service_ = std::move(make); }
  // Ranks say that they are on `hosts` hosts, of that name and the rank's number modulo the hosts.
  void pretend_hosts(std::string name, std::int32_t hosts) {
    host_ = std::move(name);
    hosts_ = hosts;
  }

  Status launch(const comm::Endpoint& head, const wire::ClusterToken& token, std::int32_t rank) override {
    head_ = head;
    token_ = token.secret();
    threads_.emplace_back([this, head, token, rank] {
      JoinOptions options;
      options.head = head;
      options.rank = rank;
      options.build = build_;
      options.host = host_.empty() ? comm::host_identity() : fmt::format("{}{}", host_, rank % hosts_);
      options.logits_observer = observer_;
      if (service_) options.service = service_();
      const auto end = run_joined_rank(options, token);
      ends_.push_back(end.ok() ? (*end == RankEnd::kStopped ? "stopped" : "lost its head")
                               : end.error().message());
    });
    return {};
  }
  std::optional<std::string> ended() override {
    const auto all = ends_.take();
    return seen_ < all.size() ? std::optional(all[seen_++]) : std::nullopt;
  }
  // Told to stop, they end by themselves.
  void finish(TimePoint) override { join(); }
  // How each ended, once the engine is gone.
  std::vector<std::string> ends() {
    join();
    return ends_.take();
  }
  const comm::Endpoint& head() const { return head_; }
  wire::ClusterToken token() const { return *wire::ClusterToken::parse(token_, "test"); }

 private:
  class Ends {
   public:
    void push_back(std::string end) {
      const std::lock_guard lock(mutex_);
      ends_.push_back(std::move(end));
    }
    std::vector<std::string> take() {
      const std::lock_guard lock(mutex_);
      return ends_;
    }

   private:
    std::mutex mutex_;
    std::vector<std::string> ends_;
  };
  void join() {
    for (std::thread& thread : threads_) {
      if (thread.joinable()) thread.join();
    }
  }

  std::string build_;
  LogitsObserver observer_;
  std::function<std::shared_ptr<RankService>()> service_;
  std::string host_;
  std::int32_t hosts_ = 1;
  comm::Endpoint head_;
  std::string token_;
  Ends ends_;
  std::size_t seen_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace shoal::engine
