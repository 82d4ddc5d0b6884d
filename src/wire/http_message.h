// What an HTTP request and an HTTP answer are to the rest of the system: plain values, no library's types.
//
// Thread-safety: values.
// Ownership: values own their bytes.
// Invariants: header names of a HttpRequest are lower case; a target's path is percent-decoded.

#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace shoal::wire {

// In the order received or to be sent; a name may appear more than once.
using HeaderList = std::vector<std::pair<std::string, std::string>>;

struct HttpRequest {
  std::string method;
  std::string target;  // as received, for logs
  std::string path;    // percent-decoded, without the query
  std::string query;   // as received, without the '?'
  HeaderList headers;
  std::string body;
  std::string remote;  // "127.0.0.1:51234"
  // The client's X-Request-Id where it is 1 to 128 printable characters without spaces, else drawn here.
  std::string request_id;

  // name in lower case. The first of that name, or nothing.
  std::optional<std::string_view> header(std::string_view name) const;
  // A parameter of the query, percent-decoded; the first of that name, or nothing.
  std::optional<std::string> parameter(std::string_view name) const;
};

// An answer given whole.
struct HttpReply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body;
  HeaderList headers;
};

// "Not Found" for 404; "Unknown" where there is no common phrase.
std::string_view reason_phrase(int status);

// %41 becomes 'A'; a broken escape stays as it is. plus_is_space: for query parameters.
std::string percent_decode(std::string_view text, bool plus_is_space);

// Fills path and query from target; an absolute target ("http://host/path") loses its scheme and host.
void split_target(HttpRequest& request);

std::string to_lower(std::string_view text);

}  // namespace shoal::wire
