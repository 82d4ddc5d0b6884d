// SGLang's fields of a request whose prompt one worker computes and whose answer another one gives:
// bootstrap_host, bootstrap_port, bootstrap_room.
//
// Thread-safety: values and pure functions.
// Errors: kInvalidArgument naming the field.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/expected.h"

namespace shoal::wire {

class JsonFields;

// Of one sequence.
struct BootstrapEntry {
  std::string host;  // of the prefill worker; empty where the request names none
  std::uint16_t port = 8998;
  std::uint64_t room = 0;  // at most 63 bits
};

// One entry for each sequence, a single value or a list of them in each field; none where the request has no
// room. Whether they are as many as the request has sequences is the caller's to check.
Status read_bootstrap_fields(const JsonFields& body, std::vector<BootstrapEntry>& out);

}  // namespace shoal::wire
