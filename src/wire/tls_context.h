// What a side of TLS connections shows and trusts, from PEM files: made once, used by all its connections.
//
// Thread-safety: immutable after making; connections of several threads share one.
// Ownership: shared by the server or client that uses it and its connections.
// Invariants: TLS 1.2 or newer, no renegotiation, no compression; a client's context verifies the server's
//   chain. Whose name the certificate must carry is said per connection (expect_host).

#pragma once

#include <boost/asio/ssl/context.hpp>

#include <filesystem>
#include <memory>
#include <string>

#include "core/expected.h"

namespace shoal::wire {

class TlsContext {
 public:
  // certificates: the server's own, then those between it and its authority. key: the first one's, not
  // encrypted. Fails with one sentence naming the file: unreadable, not PEM, or not belonging together.
  static Expected<std::shared_ptr<TlsContext>> for_server(const std::filesystem::path& certificates,
                                                          const std::filesystem::path& key);
  // Trusts the certificates in ca_file alone, or this system's where it is empty.
  static Expected<std::shared_ptr<TlsContext>> for_client(const std::filesystem::path& ca_file = {});

  boost::asio::ssl::context& native() { return context_; }

 private:
  explicit TlsContext(boost::asio::ssl::context::method method);

  boost::asio::ssl::context context_;
};

// Before a client's handshake: the certificate must be host's, a name or an address; the server is told the
// name, so that it can choose among certificates. The zone of a link-local address is no part of either.
// False where host cannot be expected: the connection must not be used, for it would trust any name.
[[nodiscard]] bool expect_host(SSL* connection, const std::string& host);

// Why a client's handshake failed, fit to follow "cannot trust HOST: "; empty where trust was not the reason.
std::string untrusted_because(const SSL* connection);

// A client that speaks plain HTTP to a TLS server made this handshake fail.
bool is_plain_http(const boost::system::error_code& handshake);
// A server that does not speak TLS made this handshake fail.
bool is_not_tls(const boost::system::error_code& handshake);

}  // namespace shoal::wire
