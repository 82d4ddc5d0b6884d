// The program `shoal`: finds the subcommand and lets it run.
//
// Exit codes: 0 done or drained; 1 run time, model or file; 2 usage; 3 lost its head.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <iostream>

#include "cli/bench_comm.h"
#include "cli/bench_context.h"
#include "cli/bench_handover.h"
#include "cli/bench_engine.h"
#include "cli/bench_kernel.h"
#include "cli/bench_machine.h"
#include "cli/bench_serve.h"
#include "cli/bench_tokenizer.h"
#include "cli/bench_traffic.h"
#include "cli/chat.h"
#include "cli/error_output.h"
#include "cli/fake_worker.h"
#include "cli/gateway.h"
#include "cli/inspect.h"
#include "cli/pair.h"
#include "cli/perplexity.h"
#include "cli/rank.h"
#include "cli/render.h"
#include "cli/score.h"
#include "cli/serve.h"
#include "cli/synth.h"
#include "cli/tokenize.h"
#include "cli/up.h"

namespace {

constexpr int kUsage = 2;

void add_subcommands(CLI::App& app, int& exit_code) {
  shoal::cli::add_serve(app, exit_code);
  shoal::cli::add_gateway(app, exit_code);
  shoal::cli::add_fake_worker(app, exit_code);
  shoal::cli::add_chat(app, exit_code);
  shoal::cli::add_rank(app, exit_code);
  shoal::cli::add_pair(app, exit_code);
  shoal::cli::add_up(app, exit_code);
  shoal::cli::add_down(app, exit_code);
  shoal::cli::add_inspect(app, exit_code);
  shoal::cli::add_tokenize(app, exit_code);
  shoal::cli::add_render(app, exit_code);
  shoal::cli::add_score(app, exit_code);
  shoal::cli::add_perplexity(app, exit_code);
  shoal::cli::add_synth(app, exit_code);
  CLI::App* bench = app.add_subcommand(
      "bench", "Measure speed: of the machine, its kernels, the engine, a tokenizer, or a running server");
  bench->require_subcommand(1);
  shoal::cli::add_bench_comm(*bench, exit_code);
  shoal::cli::add_bench_engine(*bench, exit_code);
  shoal::cli::add_bench_kernel(*bench, exit_code);
  shoal::cli::add_bench_machine(*bench, exit_code);
  shoal::cli::add_bench_serve(*bench, exit_code);
  shoal::cli::add_bench_tokenizer(*bench, exit_code);
  shoal::cli::add_bench_traffic(*bench, exit_code);
  shoal::cli::add_bench_context(*bench, exit_code);
  shoal::cli::add_bench_handover(*bench, exit_code);
}

int run(int argc, char** argv) {
  CLI::App app(
      "Serves large language models on CPUs: the OpenAI API over a model in a GGUF file or a Hugging Face "
      "folder.\nStart with `shoal serve MODEL`, or `shoal inspect MODEL` to see what it holds.",
      "shoal");
  app.set_version_flag("--version", "shoal " SHOAL_VERSION);
  app.require_subcommand(1);
  app.failure_message([](const CLI::App* failed, const CLI::Error& error) {
    // One line, the cause in it: supervisors quote the last.
    const CLI::App* command = failed;
    std::string words = command->get_name();
    for (auto chosen = command->get_subcommands(); !chosen.empty(); chosen = command->get_subcommands()) {
      command = chosen.front();
      words += " " + command->get_name();
    }
    return fmt::format("{0}: {1} (`{0} --help` says what it takes)\n", words, error.what());
  });
  int exit_code = 0;
  add_subcommands(app, exit_code);
  if (argc == 1) {
    shoal::cli::print_error("{}", app.help());
    return kUsage;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : kUsage;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int exit_code = run(argc, argv);
    // Results that did not reach their reader are no success: a full disk, a closed pipe.
    std::cout.flush();
    if (exit_code == 0 && (std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout)) {
      shoal::cli::print_error("shoal: the output could not be written: {}\n", std::strerror(errno));
      return 1;
    }
    return exit_code;
  } catch (const std::exception& error) {
    shoal::cli::print_error("shoal: {}\n", error.what());
    return 1;
  }
}
