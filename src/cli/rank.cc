#include "cli/rank.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/cli_model.h"
#include "cli/fault_file.h"
#include "cli/flag_checks.h"
#include "cli/token_file.h"
#include "comm/shm_meeting.h"
#include "core/log.h"
#include "engine/joined_rank.h"
#include "handover/rank_port.h"

namespace shoal::cli {
namespace {

struct RankFlags {
  std::string head;
  std::string token_file;
  int token_fd = -1;
  std::string log_level = "info";
  std::string advertise;
  std::string fault_plan;
  bool no_more_faults = false;
  engine::JoinOptions join;
};

Expected<wire::ClusterToken> token_of(const RankFlags& flags) {
  if (!flags.token_file.empty()) return load_token(flags.token_file);
  std::string secret;
  char buffer[4096];
  ssize_t n = 0;
  while (secret.size() <= sizeof buffer && (n = ::read(flags.token_fd, buffer, sizeof buffer)) > 0)
    secret.append(buffer, static_cast<std::size_t>(n));
  ::close(flags.token_fd);
  return wire::ClusterToken::parse(std::move(secret), "the pipe from the head");
}

// HOST or HOST:PORT.
Expected<comm::Endpoint> advertised(const std::string& text) {
  if (text.empty()) return comm::Endpoint{};
  const bool bare_v6 = std::ranges::count(text, ':') > 1 && text.front() != '[';
  if (bare_v6) {
    in6_addr address{};
    if (::inet_pton(AF_INET6, text.c_str(), &address) == 1) return comm::Endpoint{text, 0};
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("'{}' is neither HOST:PORT nor an IPv6 address", text));
  }
  if (text.find(':') == std::string::npos) return comm::Endpoint{text, 0};
  return comm::parse_endpoint(text);
}

int run_rank(RankFlags& flags) {
  // Started by the server it would be called "exe".
  ::pthread_setname_np(::pthread_self(), "shoal");
  // A reader of the log that goes away costs lines of the log, nothing else.
  ::signal(SIGPIPE, SIG_IGN);
  if (flags.token_file.empty() && flags.token_fd < 0)
    return complain("rank", {ErrorCode::kInvalidArgument, "--token-file is needed: the head's cluster token"},
                    2);
  auto token = token_of(flags);
  if (!token.ok()) return complain("rank", token.error());
  auto head = comm::parse_endpoint(flags.head);
  if (!head.ok()) return complain("rank", {head.error().code(), "--join: " + head.error().message()}, 2);
  flags.join.head = *head;
  auto advertise = advertised(flags.advertise);
  if (!advertise.ok())
    return complain("rank", {advertise.error().code(), "--advertise: " + advertise.error().message()}, 2);
  flags.join.advertise = *advertise;
  flags.join.await_head = !flags.token_file.empty();
  flags.join.build = SHOAL_VERSION;
  if (flags.no_more_faults) flags.join.faults = std::make_shared<comm::FaultPlan>(std::vector<comm::Fault>{});
  if (!flags.fault_plan.empty()) {
    auto faults = read_fault_file(flags.fault_plan, std::nullopt);
    if (!faults.ok()) return complain("rank", faults.error());
    flags.join.faults = *std::move(faults);
  }
  if (flags.join.host.empty()) flags.join.host = comm::host_identity();
  // Not by destructors: packing threads cannot be called back from the middle of a matrix.
  flags.join.lost_while_loading = [] { std::_Exit(3); };
  flags.join.service =
      std::make_shared<handover::RankPort>(std::make_shared<const wire::ClusterToken>(*token));
  const auto end = engine::run_joined_rank(flags.join, *token);
  if (!end.ok()) return complain("rank", end.error());
  return *end == engine::RankEnd::kLostHead ? 3 : 0;
}

}  // namespace

void add_rank(CLI::App& app, int& exit_code) {
  auto flags = std::make_shared<RankFlags>();
  CLI::App* rank = app.add_subcommand("rank", "Join a worker as one of the ranks that share its model");
  rank->add_option("--join", flags->head, "HOST:PORT of the worker's head")->required();
  rank->add_option("--token-file", flags->token_file, "File with the cluster token")
      ->check(not_empty("names no file", "FILE"));
  rank->add_option("--rank", flags->join.rank, "Number to join as; default: the lowest that is free")
      ->check(CLI::Range(1, 65535));
  rank->add_option("--model", flags->join.model, "Where the model lies here; default: where the head has it");
  rank->add_option("--threads", flags->join.threads,
                   "Compute threads; default: all cores, on the head's host as the head says")
      ->check(CLI::Range(1, 4096));
  rank->add_option("--advertise", flags->advertise,
                   "HOST or HOST:PORT at which the other ranks reach this one; default: the address by which "
                   "it reaches the head, any free port");
  rank->add_option("--packed-cache", flags->join.packed_cache,
                   "Folder that keeps packed weights here; default: where the head has it")
      ->check(not_empty("names no folder", "DIR"));
  rank->add_option("--fabric", flags->join.fabric,
                   "Interface here of the trusted network that the head's --fabric is on; default: of the "
                   "head's name")
      ->check(not_empty("names no interface", "IFACE"));
  rank->add_option("--host-id", flags->join.host,
                   "What tells this host from others; default: boot id and network namespace")
      ->check(host_id_check());
  rank->add_option("--token-fd", flags->token_fd, "Descriptor to read the token from")->group("");
  rank->add_option("--log-level", flags->log_level, "debug, info, warn or error")
      ->capture_default_str()
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}));
  if (kTakesFaults) {
    rank->add_option("--fault-plan", flags->fault_plan, "Faults to be harmed by, as JSON");
    rank->add_option("--no-more-faults", flags->no_more_faults, "Those of an earlier process were done")
        ->group("");
  }
  rank->callback([flags, &exit_code] {
    set_log_level(log_level_of(flags->log_level));
    exit_code = run_rank(*flags);
  });
}

}  // namespace shoal::cli
