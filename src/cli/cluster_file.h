// What a cluster file says: one model over hosts, how commands are started on each (docs/cli.md, shoal up).
//
// Thread-safety: values and pure functions.
// Errors: kInvalidArgument naming the file, the line where there is one, and what would be right.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/expected.h"
#include "layout/layout.h"

namespace shoal::cli {

struct ClusterHost {
  std::string name;
  std::vector<std::string> start;  // what a command is started with there: ssh, ip netns exec; empty: here
  std::string shoal;               // the program there; empty: this one
  std::string model;               // where the model lies there; empty: as on the first host
  std::string token_file;          // the same for the token
  std::int32_t ranks = 1;
  std::int32_t threads = 0;        // of each rank; 0: as they choose
  std::vector<std::string> flags;  // more, for `shoal rank` there
};

// In front of the servers, on the first host.
struct ClusterGateway {
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  std::vector<std::string> flags;  // more, for `shoal gateway`
};

struct ClusterFile {
  std::filesystem::path file;
  std::string model;
  std::string host = "127.0.0.1";
  std::uint16_t port = 8000;
  std::string join;               // HOST:PORT where ranks of other hosts join
  std::filesystem::path ca_file;  // by which health measures https; empty: what the system trusts
  std::string health;             // a URL; empty: of host and port
  std::filesystem::path token_file;
  std::filesystem::path logs;
  // Servers of the model, each with ranks of its own, on ports from `port` on: those that do all of a
  // request, then those of the roles prefill and decode. More than one on one host alone.
  std::int32_t servers = 1;
  std::int32_t prefill = 0;
  std::int32_t decode = 0;
  std::optional<ClusterGateway> gateway;
  Degrees degrees;
  double drain_seconds = 30;
  std::vector<std::string> flags;          // more, for `shoal serve`
  std::vector<std::string> prefill_flags;  // and more, for servers of that role
  std::vector<std::string> decode_flags;
  std::vector<ClusterHost> hosts;  // the first has the server

  std::int32_t all_servers() const { return servers + prefill + decode; }
  // Whether its processes prove to each other who they are.
  bool needs_token() const { return hosts.size() > 1 || prefill > 0; }
  // Of one server.
  std::int32_t ranks() const { return degrees.tp * degrees.pp * degrees.cp; }
};

Expected<ClusterFile> read_cluster_file(const std::filesystem::path& file);

struct ClusterProcess {
  enum class Kind : std::uint8_t { kServer, kRank, kGateway };
  Kind kind = Kind::kRank;
  std::string name;  // "server", "prefill server 2", "rank 2 on b", "gateway"
  std::string log;   // file name
  std::vector<std::string> command;
};

// The servers first, then the ranks of the other hosts, the gateway last. shoal: this program.
std::vector<ClusterProcess> processes_of(const ClusterFile& cluster, const std::string& shoal);

// Whether a server with these flags speaks https.
bool serves_tls(const std::vector<std::string>& flags);

}  // namespace shoal::cli
