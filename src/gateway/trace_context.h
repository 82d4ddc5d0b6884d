// W3C trace context: the id that ties a request's spans together, taken on from the client or drawn here.
//
// Thread-safety: pure, but for the random numbers of drawing, which are each thread's own.

#pragma once

#include <string>
#include <string_view>

namespace shoal::gateway {

struct TraceContext {
  std::string trace_id;   // 32 hexadecimal digits
  std::string parent_id;  // 16: this hop's span
  std::string flags = "00";

  // header: the client's traceparent; where it is none, or malformed, a new trace begins.
  static TraceContext continued(std::string_view header);
  std::string traceparent() const { return "00-" + trace_id + "-" + parent_id + "-" + flags; }
};

}  // namespace shoal::gateway
