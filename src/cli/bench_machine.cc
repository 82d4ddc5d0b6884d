#include "cli/bench_machine.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/cli_model.h"
#include "cli/cli_report.h"
#include "core/thread_pool.h"
#include "kernels/ceilings.h"

namespace shoal::cli {

namespace {

struct MachineFlags {
  int threads = 0;
  bool json = false;
};

int run_machine(const MachineFlags& flags) {
  const auto isa = kernels::chosen_isa();
  if (!isa) return complain("bench machine", isa.error());
  ThreadPool pool({.threads = flags.threads > 0 ? flags.threads : usable_cores()});
  const kernels::Context context{.pool = &pool, .isa = *isa};
  const auto ceilings = kernels::measure_ceilings(context);
  if (!ceilings) return complain("bench machine", ceilings.error());
  if (flags.json) {
    const nlohmann::ordered_json json{{"bench", "machine"},
                                      {"machine", machine_facts()},
                                      {"ceilings", to_json(*ceilings)},
                                      {"params", {{"threads", pool.size()}}},
                                      {"runs", nlohmann::ordered_json::array()},
                                      {"median", nullptr},
                                      {"peer", nullptr}};
    fmt::print("{}\n", json.dump(2));
  } else {
    fmt::print("{}", to_text(*ceilings));
  }
  return 0;
}

}  // namespace

void add_bench_machine(CLI::App& bench, int& exit_code) {
  auto flags = std::make_shared<MachineFlags>();
  CLI::App* command = bench.add_subcommand(
      "machine",
      "What this machine gives at most: bytes a second from memory, operations a second by instruction");
  command->add_option("--threads", flags->threads, "Threads; 0: as many as this process may use")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  command->add_flag("--json", flags->json, "Print one JSON object");
  command->callback([flags, &exit_code] { exit_code = run_machine(*flags); });
}

}  // namespace shoal::cli
