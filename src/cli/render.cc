#include "cli/render.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "core/expected.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/chat_template_file.h"

namespace shoal::cli {
namespace {

using nlohmann::ordered_json;
using tokenizer::ChatRequest;
using tokenizer::ChatTemplate;

Expected<std::string> answer(const ChatTemplate& chat_template, const std::string& input) {
  ordered_json line = ordered_json::parse(input, nullptr, false);
  if (line.is_discarded()) return Status(ErrorCode::kInvalidArgument, "the line is not valid JSON");
  if (!line.is_object() || !line.contains("messages") || !line["messages"].is_array()) {
    return Status(ErrorCode::kInvalidArgument, "the line must be an object with a list of messages");
  }
  ChatRequest request;
  request.messages = std::move(line["messages"]);
  request.tools = line.value("tools", ordered_json());
  if (!request.tools.is_null() && !request.tools.is_array()) {
    return Status(ErrorCode::kInvalidArgument, "tools must be a list");
  }
  request.kwargs = line.value("kwargs", ordered_json());
  return chat_template.render(request);
}

}  // namespace

void render_lines(const ChatTemplate& chat_template, std::istream& in, std::ostream& out) {
  for (std::string line; std::getline(in, line);) {
    const auto result = answer(chat_template, line);
    const ordered_json output =
        result.ok() ? ordered_json{{"rendered", *result}} : ordered_json{{"error", result.error().message()}};
    out << output.dump(-1, ' ', false, ordered_json::error_handler_t::replace) << '\n' << std::flush;
  }
}

void add_render(CLI::App& app, int& exit_code) {
  struct Options {
    std::string model;
    bool jsonl = false;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("render", "Turns conversations into the text the model sees");
  command->add_option("MODEL", options->model, "GGUF file, or folder with chat_template.jinja")->required();
  command->add_flag("--jsonl", options->jsonl, "one JSON object a line on standard input and output")
      ->required();
  command->callback([options, &exit_code] {
    const auto chat_template = tokenizer::load_chat_template(options->model);
    if (!chat_template.ok()) {
      std::fprintf(stderr, "shoal: %s\n", chat_template.error().message().c_str());
      exit_code = 1;
      return;
    }
    render_lines(*chat_template, std::cin, std::cout);
    exit_code = 0;
  });
}

}  // namespace shoal::cli
