// A model of random weights for tests of the service: written once a process, removed with it.
//
// Thread-safety: one thread.

#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

#include "core/thread_pool.h"
#include "engine/engine.h"
#include "formats/synth.h"
#include "serving/worker.h"

namespace shoal::serving {

inline constexpr std::int32_t kContext = 256;

// llama-micro as a GGUF file; it has a chat template.
inline const std::filesystem::path& micro_model() {
  struct File {
    std::filesystem::path path =
        std::filesystem::temp_directory_path() / ("shoal-serving-" + std::to_string(::getpid()) + ".gguf");
    File() {
      ThreadPool pool({.threads = 1});
      const Status written = formats::write_synth(*formats::find_synth_shape("llama-micro"), {}, path, pool);
      EXPECT_TRUE(written.ok()) << written.message();
    }
    ~File() {
      std::error_code ignored;
      std::filesystem::remove(path, ignored);
    }
  };
  static const File file;
  return file.path;
}

inline std::unique_ptr<Worker> micro_worker() {
  engine::EngineOptions options;
  options.model = micro_model();
  options.threads = 1;
  options.context = kContext;
  options.kv_pages = 64;
  auto engine = engine::Engine::start(std::move(options));
  EXPECT_TRUE(engine.ok()) << engine.status().message();
  auto prompts = PromptBuilder::make((*engine)->tokenizer(), (*engine)->context());
  EXPECT_TRUE(prompts.ok()) << prompts.status().message();
  return std::make_unique<Worker>(Worker{.engine = *std::move(engine),
                                         .prompts = *std::move(prompts),
                                         .served_name = "micro",
                                         .model_file = "micro.gguf",
                                         .created = 1,
                                         .sampling_defaults = {},
                                         .max_choices = 64,
                                         .text = std::make_unique<TextThread>(16)});
}

}  // namespace shoal::serving
