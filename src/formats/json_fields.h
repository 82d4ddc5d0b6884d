// The fields of a JSON object from a model's folder, read strictly: a field of another kind is an error, an
// absent one or null the fallback.
//
// Thread-safety: none; a JsonFields belongs to one thread.
// Ownership: borrows the object; what it returns owns its memory.
// Errors: kCorrupt, "FILE: FIELD is ..., expected is ...".

#pragma once

#include <simdjson.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/expected.h"

namespace shoal::formats {

// A parsed file; the document lives as long as this.
class JsonFile {
 public:
  // name: for messages. Fails with kCorrupt for anything but a JSON object.
  static Expected<JsonFile> parse(std::string_view text, std::string name);

  const std::string& name() const { return name_; }
  simdjson::dom::object root() const { return root_; }

 private:
  JsonFile() = default;
  // The document lies inside the parser, and elements point at it.
  std::unique_ptr<simdjson::dom::parser> parser_;
  simdjson::dom::object root_;
  std::string name_;
};

class JsonFields {
 public:
  // prefix: of field names in messages, "rope_scaling." inside that object.
  JsonFields(simdjson::dom::object object, std::string file, std::string prefix = {})
      : object_(object), file_(std::move(file)), prefix_(std::move(prefix)) {}

  const std::string& file() const { return file_; }
  // There, and not null.
  bool has(std::string_view field) const;
  // There, be it as null.
  bool mentions(std::string_view field) const;

  Expected<std::int64_t> integer(std::string_view field, std::int64_t least, std::int64_t largest) const;
  Expected<std::int64_t> integer(std::string_view field, std::int64_t least, std::int64_t largest,
                                 std::int64_t fallback) const;
  // A number in (0, largest].
  Expected<double> positive(std::string_view field, double largest) const;
  Expected<double> positive(std::string_view field, double largest, double fallback) const;
  // A number in [least, largest].
  Expected<double> number(std::string_view field, double least, double largest) const;
  Expected<bool> boolean(std::string_view field, bool fallback) const;
  Expected<std::string> text(std::string_view field, std::string_view fallback) const;
  Expected<std::vector<std::string>> texts(std::string_view field) const;
  // One integer or a list of them; nothing where absent.
  Expected<std::vector<std::int64_t>> integers(std::string_view field, std::int64_t least,
                                               std::int64_t largest) const;
  // Nothing where absent.
  Expected<std::optional<JsonFields>> object(std::string_view field) const;

  Status wrong(std::string_view field, std::string_view expected) const;
  Status unsupported(std::string_view what) const;

 private:
  simdjson::dom::object object_;
  std::string file_;
  std::string prefix_;
};

}  // namespace shoal::formats
