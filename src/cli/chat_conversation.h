// What has been said in `shoal chat`, and the request that goes on with it.
//
// Thread-safety: none; a value.
// Ownership: owns its messages.
// Invariants: after the system prompt, user and assistant take turns; a request is made only when the user
//   has the last word. A failed operation leaves the conversation as it was.

#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"

namespace shoal::cli {

class ChatConversation {
 public:
  std::string model;
  std::string system;  // empty: none

  // Sampling fields that are sent, by their API names; the server's own defaults apply to the others.
  Status set(std::string_view name, std::string_view value);
  Status unset(std::string_view name);
  const std::map<std::string, double>& settings() const { return settings_; }
  // "temperature, top_p, ...": what set() takes.
  static std::string known_settings();

  void say(std::string text) { messages_.push_back({"user", std::move(text)}); }
  void answered(std::string text) { messages_.push_back({"assistant", std::move(text)}); }
  // Takes back what was said last, and gives it.
  std::string take_back();
  // Takes back the last answer so that it can be asked for again; nothing where there is none.
  std::optional<std::string> take_back_answer();
  void clear() { messages_.clear(); }
  std::size_t size() const { return messages_.size(); }

  // The body of a streamed chat completion.
  std::string request() const;

  // {"model", "messages"}: what other clients read too. An existing file is not overwritten.
  Status save(const std::filesystem::path& file) const;
  // A file that save() wrote, or any object with such messages; keeps the model that is talked to.
  Status load(const std::filesystem::path& file);

 private:
  struct Message {
    std::string role;
    std::string content;
  };

  std::vector<Message> messages_;
  std::map<std::string, double> settings_;
};

}  // namespace shoal::cli
