#include "cli/handover_flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <utility>

#include "cli/flag_checks.h"
#include "cli/token_file.h"
#include "core/log.h"
#include "handover/receiver.h"
#include "handover/sender.h"

namespace shoal::cli {
namespace {

Status misuse(std::string sentence, const char* flag) {
  return {ErrorCode::kInvalidArgument, std::move(sentence), flag};
}

// Every address of this machine: whoever found the bootstrap port finds the other one there, too.
bool is_any(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

}  // namespace

Status HandoverFlags::check(const Degrees& degrees) const {
  if (role != "prefill" && prefill_flags)
    return misuse("--bootstrap-port and --handover-port belong to --role prefill", "--bootstrap-port");
  if (role != "decode" && decode_flags)
    return misuse("--kv-carrier and --prefill-hosts belong to --role decode", "--kv-carrier");
  if (const auto hosts = handover::AllowedHosts::parse(prefill_hosts); !hosts.ok())
    return misuse("--prefill-hosts: " + hosts.error().message(), "--prefill-hosts");
  if (role == "both") {
    if (handover_flags) return misuse("--kv-checksum belongs to --role prefill or decode", "--kv-checksum");
    return {};
  }
  if (token_file.empty())
    return misuse(fmt::format("--role {} needs --token-file, which the other worker must hold too", role),
                  "--token-file");
  if (const std::int32_t ranks = degrees.tp * degrees.pp * degrees.cp * degrees.dp;
      handover_port != 0 && handover_port + ranks - 1 > 65535)
    return misuse(fmt::format("--handover-port {}: {} ranks listen from there on, and ports end at 65535",
                              handover_port, ranks),
                  "--handover-port");
  return {};
}

Expected<std::shared_ptr<handover::RankPorts>> HandoverFlags::equip(engine::EngineOptions& options,
                                                                    const std::string& host) const {
  if (role == "both") return std::shared_ptr<handover::RankPorts>();
  SHOAL_ASSIGN(token, load_token(token_file));
  auto ports =
      std::make_shared<handover::RankPorts>(std::make_shared<const wire::ClusterToken>(std::move(token)));
  ports->equip(options, role, {host, role == "prefill" ? handover_port : std::uint16_t{0}});
  return ports;
}

Status HandoverFlags::start(serving::Worker& worker, std::shared_ptr<handover::RankPorts> ports,
                            const std::string& host) const {
  if (role == "both") return {};
  const auto checksums = handover::checksums_from_name(checksum).value_or(handover::Checksums::kSampled);
  if (role == "decode") {
    SHOAL_ASSIGN(hosts, handover::AllowedHosts::parse(prefill_hosts));
    worker.receiver = std::make_unique<handover::Receiver>(
        *worker.engine, std::move(ports),
        handover::Receiver::Options{SHOAL_VERSION, checksums, carrier == "auto", std::move(hosts)});
    return {};
  }
  handover::Sender::Options sends;
  sends.listen = {host, handover_port};
  sends.build = SHOAL_VERSION;
  sends.checksums = checksums;
  SHOAL_ASSIGN(sender, handover::Sender::start(*worker.engine, ports, std::move(sends)));
  worker.sender = std::move(sender);
  const engine::KvPools& pools = worker.engine->kv_pools();
  handover::BootstrapPort::Options answers;
  answers.host = host;
  answers.port = bootstrap_port;
  answers.layout = pools.layout;
  answers.rank_host = is_any(host) ? "" : host;
  answers.endpoint = [ports](std::int32_t rank) { return ports->endpoint(rank); };
  answers.kv_dtype = pools.views.front().layout.dtype == KvDType::kF32 ? "float32" : "bfloat16";
  SHOAL_ASSIGN(port, handover::BootstrapPort::start(std::move(answers)));
  worker.bootstrap = std::move(port);
  log(LogLevel::kInfo, "handover.listening", "bootstrap_port={} handover_port={}", worker.bootstrap->port(),
      worker.sender->port());
  return {};
}

CLI::Option* add_handover_flags(CLI::App& serve, HandoverFlags& flags) {
  auto* role =
      serve
          .add_option(
              "--role", flags.role,
              "prefill: computes prompts and hands their KV over; decode: goes on from there; both: neither "
              "is asked of it")
          ->capture_default_str()
          ->check(CLI::IsMember({"prefill", "decode", "both"}));
  auto* bootstrap =
      serve
          .add_option("--bootstrap-port", flags.bootstrap_port,
                      "Of a prefill worker: where decode workers ask for its route; 0 takes a free one")
          ->capture_default_str();
  auto* port =
      serve
          .add_option("--handover-port", flags.handover_port,
                      "Of a prefill worker: where decode workers fetch KV, from rank r at PORT + r; 0 takes "
                      "free ones")
          ->capture_default_str();
  auto* checksum =
      serve
          .add_option("--kv-checksum", flags.checksum,
                      "Which writes of KV are checked: off, sampled (one in 16), full; the stricter "
                      "of both workers counts")
          ->capture_default_str()
          ->check(CLI::IsMember({"off", "sampled", "full"}));
  auto* carrier =
      serve
          .add_option("--kv-carrier", flags.carrier,
                      "Of a decode worker: auto reads KV from a prefill worker of the same host and user in "
                      "one copy, where the system allows it; tcp has it sent as from other hosts")
          ->capture_default_str()
          ->check(CLI::IsMember({"auto", "tcp"}));
  auto* hosts =
      serve
          .add_option("--prefill-hosts", flags.prefill_hosts,
                      "Of a decode worker: prefill workers that requests may name: addresses, networks "
                      "(10.0.0.0/8) and names, separated by commas; default: any")
          ->delimiter(',')
          ->check(not_empty("names no host", "HOST"));
  hosts->each([&flags](const std::string&) { flags.decode_flags = true; });
  carrier->each([&flags](const std::string&) { flags.decode_flags = true; });
  for (CLI::Option* option : {bootstrap, port})
    option->each([&flags](const std::string&) { flags.prefill_flags = true; });
  checksum->each([&flags](const std::string&) { flags.handover_flags = true; });
  return role;
}

}  // namespace shoal::cli
