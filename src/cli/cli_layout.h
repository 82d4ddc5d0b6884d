// The flags that say how ranks share a model, as every command that starts ranks takes them.
//
// Thread-safety: values.

#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "layout/layout.h"

namespace CLI {
class App;
}

namespace shoal::cli {

struct LayoutFlags {
  Degrees degrees;
  std::vector<std::int32_t> stage_layers;
  std::vector<std::int32_t> tp_split;
  std::string balance = "mix";
  std::string wire = "auto";

  std::string cp_partition = "zigzag";
  std::int32_t cp_force = 0;

  bool one_rank() const { return degrees.tp * degrees.pp * degrees.cp == 1; }
  void apply_to(engine::EngineOptions& options) const;
};

// --tp, --pp, --cp, --layers, --tp-split, --balance, --wire, --cp-partition, --cp-force.
void add_layout_flags(CLI::App& command, LayoutFlags& flags);

}  // namespace shoal::cli
