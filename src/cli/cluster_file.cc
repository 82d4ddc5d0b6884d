#include "cli/cluster_file.h"

#include <fmt/format.h>

#define TOML_EXCEPTIONS 0
#include <toml++/toml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <optional>
#include <set>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#include "comm/socket.h"
#include "parallel/peers.h"

namespace shoal::cli {
namespace {

// Such text would be cut where it becomes a word of a command.
bool has_nul(const std::string& text) { return text.find('\0') != std::string::npos; }

// As TOML types it: neither true nor 1.0 is a whole number.
template <typename Number>
std::optional<Number> number_of(const toml::node& node) {
  if constexpr (std::is_floating_point_v<Number>) {
    return node.is_number() ? node.value<Number>() : std::nullopt;
  } else {
    return node.is_integer() ? node.value<Number>() : std::nullopt;
  }
}

// Takes the fields of one table; what nobody took is a mistake.
class Fields {
 public:
  Fields(const toml::table& table, std::string file) : table_(table), file_(std::move(file)) {}

  void take(std::string_view key, std::string& value) {
    if (const auto* node = find(key)) {
      const auto text = node->value_exact<std::string>();
      if (!text || text->empty()) return wrong(*node, key, "a string, and not an empty one");
      if (has_nul(*text)) return wrong(*node, key, "text without a zero byte");
      value = *text;
    }
  }
  void take(std::string_view key, std::filesystem::path& value) {
    std::string text;
    take(key, text);
    if (!text.empty()) value = text;
  }
  template <typename Number>
  void take_number(std::string_view key, Number& value, Number least, Number most) {
    if (const auto* node = find(key)) {
      const auto number = number_of<Number>(*node);
      if (number && *number >= least && *number <= most) {
        value = *number;
      } else {
        wrong(*node, key, fmt::format("a number from {} to {}", least, most));
      }
    }
  }
  void take(std::string_view key, std::vector<std::string>& value) {
    const auto* node = find(key);
    if (node == nullptr) return;
    const toml::array* list = node->as_array();
    if (list == nullptr) return wrong(*node, key, "a list of strings");
    for (const toml::node& each : *list) {
      const auto text = each.value_exact<std::string>();
      if (!text) return wrong(each, key, "a list of strings");
      if (has_nul(*text)) return wrong(each, key, "text without zero bytes");
      if (key == "start" && value.empty() && text->empty())
        return wrong(each, key, "a command and its words");
      value.push_back(*text);
    }
  }
  const toml::table* take_table(std::string_view key) {
    const auto* node = find(key);
    if (node == nullptr) return nullptr;
    if (!node->is_table()) wrong(*node, key, fmt::format("a table, begun by [{}]", key));
    return node->as_table();
  }
  const toml::array* take_tables(std::string_view key) {
    const auto* node = find(key);
    if (node == nullptr) return nullptr;
    if (!node->is_array_of_tables()) {
      wrong(*node, key, fmt::format("tables, each begun by [[{}]]", key));
      return nullptr;
    }
    return node->as_array();
  }
  // The first mistake.
  Status status() {
    for (const auto& [key, node] : table_) {
      if (!known_.contains(std::string(key.str())))
        fail(node, fmt::format("there is no '{}' here; known: {}", key.str(), fmt::join(known_, ", ")));
    }
    return status_;
  }

 private:
  const toml::node* find(std::string_view key) {
    known_.emplace(key);
    return table_.get(key);
  }
  void wrong(const toml::node& node, std::string_view key, const std::string& right) {
    fail(node, fmt::format("'{}' must be {}", key, right));
  }
  void fail(const toml::node& node, const std::string& sentence) {
    if (status_.ok())
      status_ = Status(ErrorCode::kInvalidArgument,
                       fmt::format("{}:{}: {}", file_, node.source().begin.line, sentence));
  }

  const toml::table& table_;
  std::string file_;
  std::set<std::string> known_;
  Status status_;
};

Expected<ClusterHost> host_of(const toml::table& table, const std::string& file, std::size_t number) {
  ClusterHost host;
  host.name = number == 0 ? "head" : fmt::format("host{}", number + 1);
  Fields fields(table, file);
  fields.take("name", host.name);
  fields.take("start", host.start);
  fields.take("shoal", host.shoal);
  fields.take("model", host.model);
  fields.take("token_file", host.token_file);
  fields.take_number<std::int32_t>("ranks", host.ranks, 1, 4096);
  fields.take_number<std::int32_t>("threads", host.threads, 1, 4096);
  fields.take("flags", host.flags);
  SHOAL_TRY(fields.status());
  if (number == 0 && !host.flags.empty())
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("{}:{}: the first host's 'flags' would go nowhere: those of the server and its "
                              "ranks stand above [[hosts]]",
                              file, table.get("flags")->source().begin.line));
  return host;
}

Expected<ClusterGateway> gateway_of(const toml::table& table, const std::string& file) {
  ClusterGateway gateway;
  Fields fields(table, file);
  fields.take("host", gateway.host);
  fields.take_number<std::uint16_t>("port", gateway.port, 1, std::numeric_limits<std::uint16_t>::max());
  fields.take("flags", gateway.flags);
  SHOAL_TRY(fields.status());
  return gateway;
}

// Where a process of this machine reaches a server that listens there.
std::string reachable(const std::string& host) {
  if (host == "0.0.0.0") return "127.0.0.1";
  if (host == "::") return "[::1]";
  return host.find(':') == std::string::npos ? host : "[" + host + "]";
}

std::string server_url(const ClusterFile& cluster, std::int32_t server) {
  return fmt::format("http{}://{}:{}", serves_tls(cluster.flags) ? "s" : "", reachable(cluster.host),
                     cluster.port + server);
}

Status check_servers(const ClusterFile& cluster) {
  const auto bad = [&](const std::string& sentence) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("{}: {}", cluster.file.string(), sentence));
  };
  if ((cluster.prefill > 0) != (cluster.decode > 0))
    return bad("'prefill' and 'decode' need each other: an answer takes a server of both roles");
  for (const auto& [flags, servers, role] : {std::tuple{&cluster.prefill_flags, cluster.prefill, "prefill"},
                                             {&cluster.decode_flags, cluster.decode, "decode"}}) {
    if (!flags->empty() && servers == 0)
      return bad(fmt::format("'{}_flags' would go nowhere: there is no '{}'", role, role));
  }
  const std::int32_t servers = cluster.all_servers();
  if (servers == 0) return bad("'servers' is 0, and there is neither 'prefill' nor 'decode'");
  if (servers == 1 && !cluster.gateway) return {};
  if (servers > 1 && !cluster.gateway) return bad("several servers need a [gateway] in front of them");
  if (servers > 1 && cluster.hosts.size() > 1)
    return bad("several servers stand on one host alone: ranks of other hosts would not know whom to join");
  const std::int32_t last = cluster.port + servers - 1;
  if (last > std::numeric_limits<std::uint16_t>::max())
    return bad(fmt::format("{} servers from port {} on: there are no such ports", servers, cluster.port));
  if (cluster.gateway->port >= cluster.port && cluster.gateway->port <= last)
    return bad(fmt::format("the gateway's port {} is a server's, too: 'port' is the first server's",
                           cluster.gateway->port));
  return {};
}

Status check(const ClusterFile& cluster) {
  const auto bad = [&](const std::string& sentence) {
    return Status(ErrorCode::kInvalidArgument, fmt::format("{}: {}", cluster.file.string(), sentence));
  };
  if (cluster.model.empty()) return bad("'model' is needed: the file or folder to serve");
  if (const Status served = parallel::check_degrees(cluster.degrees); !served.ok())
    return bad(served.message());
  std::int32_t ranks = 0;
  for (const ClusterHost& host : cluster.hosts) ranks += host.ranks;
  const Degrees& d = cluster.degrees;
  if (ranks != cluster.ranks())
    return bad(fmt::format("tp {}, pp {} and cp {} take {} ranks, the hosts have {}", d.tp, d.pp, d.cp,
                           cluster.ranks(), ranks));
  SHOAL_TRY(check_servers(cluster));
  if (cluster.hosts.size() == 1) {
    if (!cluster.join.empty()) return bad("'join' is for several hosts: with one no rank joins");
    if (!cluster.needs_token() && (!cluster.token_file.empty() || !cluster.hosts.front().token_file.empty()))
      return bad("'token_file' is for several hosts, or 'prefill' and 'decode': with one no rank joins");
    return {};
  }
  if (cluster.join.empty())
    return bad("several hosts need 'join': HOST:PORT where their ranks reach the first");
  auto join = comm::parse_endpoint(cluster.join);
  if (!join.ok()) return bad("'join': " + join.error().message());
  return {};
}

void append(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

// role: prefill, decode, or empty. number: among those of its role; place: among all servers.
ClusterProcess server_of(const ClusterFile& cluster, const std::string& shoal, const std::string& role,
                         std::int32_t number, std::int32_t place) {
  const ClusterHost& host = cluster.hosts.front();
  const std::string after = number == 0 ? "" : fmt::format("{}", number + 1);
  ClusterProcess server{
      ClusterProcess::Kind::kServer,
      fmt::format("{}{}server{}{}", role, role.empty() ? "" : " ", number == 0 ? "" : " ", after),
      fmt::format("{}{}{}.log", role.empty() ? "server" : role, number == 0 ? "" : "-", after), host.start};
  append(server.command,
         {host.shoal.empty() ? shoal : host.shoal, "serve", host.model.empty() ? cluster.model : host.model,
          "--host", cluster.host, "--port", std::to_string(cluster.port + place), "--tp",
          std::to_string(cluster.degrees.tp), "--pp", std::to_string(cluster.degrees.pp), "--cp",
          std::to_string(cluster.degrees.cp), "--drain-seconds", fmt::format("{}", cluster.drain_seconds)});
  if (host.threads > 0) append(server.command, {"--threads", std::to_string(host.threads)});
  if (cluster.hosts.size() > 1)
    append(server.command, {"--listen-ranks", cluster.join, "--local-ranks", std::to_string(host.ranks)});
  if (!role.empty()) append(server.command, {"--role", role});
  // A free one: the gateway hears which from the server itself.
  if (role == "prefill") append(server.command, {"--bootstrap-port", "0"});
  if (cluster.hosts.size() > 1 || !role.empty())
    append(server.command,
           {"--token-file", host.token_file.empty() ? cluster.token_file.string() : host.token_file});
  append(server.command, cluster.flags);
  append(server.command, role == "prefill"  ? cluster.prefill_flags
                         : role == "decode" ? cluster.decode_flags
                                            : std::vector<std::string>());
  return server;
}

}  // namespace

bool serves_tls(const std::vector<std::string>& flags) {
  return std::ranges::any_of(
      flags, [](const std::string& flag) { return flag == "--tls-cert" || flag.starts_with("--tls-cert="); });
}

Expected<ClusterFile> read_cluster_file(const std::filesystem::path& file) {
  errno = 0;
  const toml::parse_result parsed = toml::parse_file(file.string());
  if (!parsed && errno != 0 && parsed.error().source().begin.line == 0)
    return Status(ErrorCode::kIo, fmt::format("{} cannot be read: {}", file.string(), std::strerror(errno)));
  if (!parsed)
    return Status(ErrorCode::kInvalidArgument,
                  fmt::format("{}:{}: {}", file.string(), parsed.error().source().begin.line,
                              parsed.error().description()));
  ClusterFile cluster;
  cluster.file = file;
  cluster.logs = "logs";
  Fields fields(parsed.table(), file.string());
  fields.take("model", cluster.model);
  fields.take("host", cluster.host);
  fields.take_number<std::uint16_t>("port", cluster.port, 1, std::numeric_limits<std::uint16_t>::max());
  fields.take("join", cluster.join);
  fields.take("health", cluster.health);
  fields.take("ca_file", cluster.ca_file);
  fields.take("token_file", cluster.token_file);
  fields.take("logs", cluster.logs);
  Degrees& degrees = cluster.degrees;
  for (const auto& [key, degree] : {std::pair{"tp", &degrees.tp},
                                    {"pp", &degrees.pp},
                                    {"cp", &degrees.cp},
                                    {"dp", &degrees.dp},
                                    {"ep", &degrees.ep}})
    fields.take_number<std::int32_t>(key, *degree, 1, 64);
  fields.take_number<std::int32_t>("prefill", cluster.prefill, 1, 1024);
  fields.take_number<std::int32_t>("decode", cluster.decode, 1, 1024);
  fields.take("prefill_flags", cluster.prefill_flags);
  fields.take("decode_flags", cluster.decode_flags);
  if (cluster.prefill + cluster.decode > 0) cluster.servers = 0;
  fields.take_number<std::int32_t>("servers", cluster.servers, 1, 1024);
  const toml::table* gateway = fields.take_table("gateway");
  fields.take_number<double>("drain_seconds", cluster.drain_seconds, 0, 86400);
  fields.take("flags", cluster.flags);
  const toml::array* hosts = fields.take_tables("hosts");
  SHOAL_TRY(fields.status());
  if (gateway != nullptr) {
    SHOAL_ASSIGN(read, gateway_of(*gateway, file.string()));
    cluster.gateway = std::move(read);
  }
  for (std::size_t i = 0; hosts != nullptr && i < hosts->size(); ++i) {
    SHOAL_ASSIGN(host, host_of(*hosts->get(i)->as_table(), file.string(), i));
    cluster.hosts.push_back(std::move(host));
  }
  if (cluster.hosts.empty()) {
    cluster.hosts.emplace_back();
    cluster.hosts.front().name = "head";
    cluster.hosts.front().ranks = cluster.ranks();
  }
  SHOAL_TRY(check(cluster));
  if (cluster.token_file.empty()) cluster.token_file = "cluster.token";
  // Paths are the file's neighbours, wherever the command is given.
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::absolute(file, ignored).parent_path();
  for (std::filesystem::path* path : {&cluster.token_file, &cluster.logs}) *path = folder / *path;
  cluster.model = (folder / cluster.model).string();
  if (!cluster.ca_file.empty()) cluster.ca_file = folder / cluster.ca_file;
  return cluster;
}

std::vector<ClusterProcess> processes_of(const ClusterFile& cluster, const std::string& shoal) {
  std::vector<ClusterProcess> processes;
  std::vector<std::string> fronted;  // the gateway's words for them
  for (const auto& [role, number] :
       {std::pair{"", cluster.servers}, {"prefill", cluster.prefill}, {"decode", cluster.decode}}) {
    for (std::int32_t n = 0; n < number; ++n) {
      const auto place = static_cast<std::int32_t>(processes.size());
      append(fronted, {*role == 0 ? "--worker" : fmt::format("--{}", role), server_url(cluster, place)});
      processes.push_back(server_of(cluster, shoal, role, n, place));
    }
  }
  std::int32_t rank = cluster.hosts.front().ranks;
  for (std::size_t i = 1; i < cluster.hosts.size(); ++i) {
    const ClusterHost& host = cluster.hosts[i];
    const std::string token = host.token_file.empty() ? cluster.token_file.string() : host.token_file;
    const std::string program = host.shoal.empty() ? shoal : host.shoal;
    for (std::int32_t n = 0; n < host.ranks; ++n, ++rank) {
      ClusterProcess process{ClusterProcess::Kind::kRank, fmt::format("rank {} on {}", rank, host.name),
                             fmt::format("rank-{}.log", rank), host.start};
      append(process.command, {program, "rank", "--join", cluster.join, "--token-file", token, "--rank",
                               std::to_string(rank)});
      if (!host.model.empty()) append(process.command, {"--model", host.model});
      if (host.threads > 0) append(process.command, {"--threads", std::to_string(host.threads)});
      append(process.command, host.flags);
      processes.push_back(std::move(process));
    }
  }
  if (cluster.gateway) {
    ClusterProcess gateway{ClusterProcess::Kind::kGateway, "gateway", "gateway.log",
                           cluster.hosts.front().start};
    append(gateway.command,
           {cluster.hosts.front().shoal.empty() ? shoal : cluster.hosts.front().shoal, "gateway", "--host",
            cluster.gateway->host, "--port", std::to_string(cluster.gateway->port), "--drain-seconds",
            fmt::format("{}", cluster.drain_seconds)});
    append(gateway.command, fronted);
    append(gateway.command, cluster.gateway->flags);
    processes.push_back(std::move(gateway));
  }
  return processes;
}

}  // namespace shoal::cli
