#include "wire/tls_context.h"

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ssl/error.hpp>

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "core/log.h"

namespace shoal::wire {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

// OpenSSL would ask for the pass phrase on the terminal. asked: a bool, or null.
int no_pass_phrase(char*, int, int, void* asked) {
  if (asked != nullptr) *static_cast<bool*>(asked) = true;
  return -1;
}

Status cannot_read(const std::filesystem::path& file, const char* what, int error) {
  return {ErrorCode::kIo,
          fmt::format("{}: cannot read the {} ({})", file.string(), what, std::strerror(error))};
}

// What the file API of OpenSSL says only as "system lib".
Status check_readable(const std::filesystem::path& file, const char* what) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(file, error)) {
    return error ? cannot_read(file, what, error.value())
                 : Status(ErrorCode::kIo,
                          fmt::format("{}: is not a file that could hold the {}", file.string(), what));
  }
  std::FILE* opened = std::fopen(file.c_str(), "r");
  if (opened == nullptr) return cannot_read(file, what, errno);
  std::fclose(opened);
  return {};
}

void warn_if_expired(SSL_CTX* context, const std::filesystem::path& file) {
  const X509* certificate = SSL_CTX_get0_certificate(context);
  if (certificate == nullptr) return;
  if (X509_cmp_current_time(X509_get0_notAfter(certificate)) < 0) {
    log(LogLevel::kWarn, "tls.certificate_expired", "file={}", file.string());
  } else if (X509_cmp_current_time(X509_get0_notBefore(certificate)) > 0) {
    log(LogLevel::kWarn, "tls.certificate_not_yet_valid", "file={}", file.string());
  }
}

Status load_chain(SSL_CTX* context, const std::filesystem::path& file) {
  SHOAL_TRY(check_readable(file, "certificate"));
  if (SSL_CTX_use_certificate_chain_file(context, file.c_str()) == 1) return {};
  // The first error is the cause; those after it say what followed.
  const unsigned long error = ERR_peek_error();
  if (ERR_GET_LIB(error) == ERR_LIB_PEM && ERR_GET_REASON(error) == PEM_R_NO_START_LINE) {
    return {ErrorCode::kCorrupt, fmt::format("{}: holds no certificate in PEM form", file.string())};
  }
  const char* reason = ERR_reason_error_string(error);
  return {ErrorCode::kCorrupt, fmt::format("{}: the certificate cannot be used ({})", file.string(),
                                           reason == nullptr ? "it is broken" : reason)};
}

Status load_key(SSL_CTX* context, const std::filesystem::path& file) {
  SHOAL_TRY(check_readable(file, "private key"));
  bool encrypted = false;
  SSL_CTX_set_default_passwd_cb_userdata(context, &encrypted);
  const bool loaded = SSL_CTX_use_PrivateKey_file(context, file.c_str(), SSL_FILETYPE_PEM) == 1;
  SSL_CTX_set_default_passwd_cb_userdata(context, nullptr);
  // A key of another kind than the certificate's is loaded beside it without a word.
  if (loaded && SSL_CTX_check_private_key(context) == 1) return {};
  if (encrypted) {
    return {ErrorCode::kUnsupported,
            fmt::format("{}: the private key is encrypted; a server needs it without a pass phrase",
                        file.string())};
  }
  const unsigned long error = ERR_peek_error();
  const int reason = ERR_GET_REASON(error);
  if (loaded || (ERR_GET_LIB(error) == ERR_LIB_X509 &&
                 (reason == X509_R_KEY_VALUES_MISMATCH || reason == X509_R_KEY_TYPE_MISMATCH))) {
    return {ErrorCode::kInvalidArgument,
            fmt::format("{}: the private key does not belong to the certificate", file.string())};
  }
  return {ErrorCode::kCorrupt, fmt::format("{}: holds no private key in PEM form", file.string())};
}

bool is_ssl_error(const error_code& error, int reason) {
  return error.category() == asio::error::get_ssl_category() &&
         ERR_GET_REASON(static_cast<unsigned long>(error.value())) == reason;
}

}  // namespace

TlsContext::TlsContext(asio::ssl::context::method method) : context_(method) {
  SSL_CTX* const native = context_.native_handle();
  SSL_CTX_set_min_proto_version(native, TLS1_2_VERSION);
  SSL_CTX_set_options(native, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION);
  // Hundreds of kept-alive connections: 32 KiB of buffers each is given back while they idle.
  SSL_CTX_set_mode(native, SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_default_passwd_cb(native, no_pass_phrase);
}

Expected<std::shared_ptr<TlsContext>> TlsContext::for_server(const std::filesystem::path& certificates,
                                                             const std::filesystem::path& key) {
  std::shared_ptr<TlsContext> context(new TlsContext(asio::ssl::context::tls_server));
  ERR_clear_error();
  Status loaded = load_chain(context->native().native_handle(), certificates);
  if (loaded.ok()) loaded = load_key(context->native().native_handle(), key);
  ERR_clear_error();
  if (!loaded.ok()) return loaded;
  warn_if_expired(context->native().native_handle(), certificates);
  return context;
}

Expected<std::shared_ptr<TlsContext>> TlsContext::for_client(const std::filesystem::path& ca_file) {
  std::shared_ptr<TlsContext> context(new TlsContext(asio::ssl::context::tls_client));
  SSL_CTX* const native = context->native().native_handle();
  SSL_CTX_set_verify(native, SSL_VERIFY_PEER, nullptr);
  if (ca_file.empty()) {
    if (SSL_CTX_set_default_verify_paths(native) == 1) return context;
    ERR_clear_error();
    return Status(ErrorCode::kIo, "the certificates that this system trusts cannot be read");
  }
  SHOAL_TRY(check_readable(ca_file, "trusted certificates"));
  ERR_clear_error();
  const bool loaded = SSL_CTX_load_verify_locations(native, ca_file.c_str(), nullptr) == 1;
  ERR_clear_error();
  if (!loaded) {
    return Status(ErrorCode::kCorrupt, fmt::format("{}: holds no certificate in PEM form", ca_file.string()));
  }
  return context;
}

bool expect_host(SSL* connection, const std::string& host) {
  // OpenSSL takes an empty name for "any".
  if (host.empty() || host.find('\0') != std::string::npos) return false;
  SSL_set_hostflags(connection, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  error_code no_address;
  const auto address = asio::ip::make_address(host, no_address);
  if (no_address) {
    return SSL_set1_host(connection, host.c_str()) == 1 &&
           SSL_set_tlsext_host_name(connection, host.c_str()) == 1;
  }
  // Addresses are no names: RFC 6066 keeps them out of the name indication. As bytes, which have no zone.
  const auto expect = [connection](const auto& bytes) {
    return X509_VERIFY_PARAM_set1_ip(SSL_get0_param(connection), bytes.data(), bytes.size()) == 1;
  };
  return address.is_v4() ? expect(address.to_v4().to_bytes()) : expect(address.to_v6().to_bytes());
}

std::string untrusted_because(const SSL* connection) {
  const long result = SSL_get_verify_result(connection);
  switch (result) {
    case X509_V_OK:
      return {};
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
      return "its certificate is for another name";
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      return fmt::format(
          "nobody who is trusted here signed its certificate ({}); --ca-file names who else to trust",
          X509_verify_cert_error_string(result));
    default:
      return X509_verify_cert_error_string(result);
  }
}

bool is_plain_http(const error_code& handshake) { return is_ssl_error(handshake, SSL_R_HTTP_REQUEST); }

bool is_not_tls(const error_code& handshake) {
  return is_ssl_error(handshake, SSL_R_WRONG_VERSION_NUMBER) ||
         is_ssl_error(handshake, SSL_R_PACKET_LENGTH_TOO_LONG);
}

}  // namespace shoal::wire
