#include "cli/cli_layout.h"

#include <CLI/CLI.hpp>

namespace shoal::cli {

void LayoutFlags::apply_to(engine::EngineOptions& options) const {
  options.degrees = degrees;
  options.stage_layers = stage_layers;
  options.tp_split = tp_split;
  options.balance = *balance_from_name(balance);
  options.cp_partition = *partition_from_name(cp_partition);
  options.cp_force = cp_force;
  options.sums = wire == "bf16" ? DType::kBF16 : DType::kF32;
}

void add_layout_flags(CLI::App& command, LayoutFlags& flags) {
  command
      .add_option("--tp", flags.degrees.tp, "Tensor parallelism: ranks that share every layer of the model")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command
      .add_option("--pp", flags.degrees.pp,
                  "Pipeline parallelism: stages that hold the layers one after the other")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command
      .add_option(
          "--cp", flags.degrees.cp,
          "Context parallelism: coordinates that hold a long context together, each with a copy of the "
          "weights; short prompts run side by side on one each")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  command
      .add_option("--cp-partition", flags.cp_partition,
                  "How a prompt is dealt to the coordinates: zigzag (equal work), or for comparison striped, "
                  "contiguous or masked (zigzag that computes, and throws away, what the mask hides)")
      ->capture_default_str()
      ->check(CLI::IsMember({"zigzag", "striped", "contiguous", "masked"}));
  command
      .add_option(
          "--cp-force", flags.cp_force,
          "For experiments: so many coordinates compute every prompt, instead of as many as pay for it")
      ->check(CLI::Range(1, 64));
  auto* split = command
                    .add_option("--tp-split", flags.tp_split,
                                "Shares of the ranks of --tp, as 3,1; default: as even as the model allows")
                    ->delimiter(',')
                    ->check(CLI::Range(1, 65535));
  split->type_name("N,N,...");
  auto* layers = command
                     .add_option("--layers", flags.stage_layers,
                                 "Layers of each stage of --pp, as 12,18; default: by --balance")
                     ->delimiter(',')
                     ->check(CLI::Range(1, 65535));
  layers->type_name("N,N,...");
  command
      .add_option("--balance", flags.balance,
                  "What the stages' layers are balanced for: prefill (the head counts once a prompt), decode "
                  "(once a token) or mix")
      ->capture_default_str()
      ->check(CLI::IsMember({"prefill", "decode", "mix"}))
      ->excludes(layers);
  command
      .add_option(
          "--wire", flags.wire,
          "What the sums of --tp travel as between hosts: f32, bf16 (half the bytes, rounded) or auto, "
          "which is f32. Ranks of one host add up in memory, in f32")
      ->capture_default_str()
      ->check(CLI::IsMember({"auto", "f32", "bf16"}));
}

}  // namespace shoal::cli
