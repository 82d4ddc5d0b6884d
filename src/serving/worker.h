// What a loaded worker's HTTP routes work with: the engine, its prompts, its name.
//
// Thread-safety: immutable after construction but for its parts, which say so themselves.
// Ownership: owns the engine and the text thread. Destroyed after the HTTP server has shut down.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "engine/engine.h"
#include "handover/bootstrap.h"
#include "handover/receiver.h"
#include "handover/sender.h"
#include "serving/prompt_builder.h"
#include "serving/session_registry.h"
#include "serving/text_thread.h"
#include "wire/openai_request.h"

namespace shoal::serving {

std::string draw_instance();

struct Worker {
  // First, so that it outlives the sessions that the engine holds.
  std::unique_ptr<SessionRegistry> sessions = std::make_unique<SessionRegistry>();
  std::unique_ptr<engine::Engine> engine;
  // Of the role prefill, and of decode; after the engine, which they are gone before.
  std::unique_ptr<handover::Sender> sender = nullptr;
  std::unique_ptr<handover::BootstrapPort> bootstrap = nullptr;
  std::unique_ptr<handover::Receiver> receiver = nullptr;
  PromptBuilder prompts;
  std::string served_name;  // what clients call the model
  std::string model_file;
  std::int64_t created = 0;  // seconds since 1970
  // Of the sampling fields that a request leaves out.
  wire::SamplingFields sampling_defaults;
  // Answers that may run and wait in the engine together.
  std::int64_t max_choices = 0;
  std::int64_t max_sequences = 0;  // of these, that run
  // Tells this process from one that comes after it on the same port; and how many reports it has given.
  std::string instance = draw_instance();
  std::unique_ptr<std::atomic<std::int64_t>> reports = std::make_unique<std::atomic<std::int64_t>>(0);
  // Renders and encodes; last, so that it ends before what its tasks use.
  std::unique_ptr<TextThread> text;
};

}  // namespace shoal::serving
