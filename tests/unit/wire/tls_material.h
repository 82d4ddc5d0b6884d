// Certificates for tests, made when the test runs, and a TLS client that sends what it is told.
//
// Thread-safety: one thread each.
// Ownership: a CertificateFolder removes its files; a TlsClient owns its socket.
// Every wait of a TlsClient ends after kPatience.

#pragma once

#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "wire/raw_client.h"

namespace shoal::wire {

struct FreeOpenSsl {
  void operator()(X509* p) const { X509_free(p); }
  void operator()(EVP_PKEY* p) const { EVP_PKEY_free(p); }
  void operator()(SSL_CTX* p) const { SSL_CTX_free(p); }
  void operator()(SSL* p) const { SSL_free(p); }
};
template <typename T>
using OpenSslPtr = std::unique_ptr<T, FreeOpenSsl>;

// authority.pem, and server.pem with server.key for localhost and 127.0.0.1; more by add().
class CertificateFolder {
 public:
  CertificateFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "shoal-tls-XXXXXX").string();
    if (::mkdtemp(name.data()) != nullptr) folder_ = name;
    authority_key_.reset(EVP_EC_gen("P-256"));
    authority_ = certificate(authority_key_.get(), "test authority", "", 1);
    write("authority.pem", authority_.get());
    add("server", "DNS:localhost,IP:127.0.0.1");
  }
  ~CertificateFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  CertificateFolder(const CertificateFolder&) = delete;
  CertificateFolder& operator=(const CertificateFolder&) = delete;

  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }

  // NAME.pem and NAME.key; names: as subjectAltName has them. days: until it expires, negative for one that
  // has.
  void add(const std::string& name, const std::string& names, int days = 1) {
    add(name, names, days, OpenSslPtr<EVP_PKEY>(EVP_EC_gen("P-256")));
  }
  void add_rsa(const std::string& name, const std::string& names) {
    add(name, names, 1, OpenSslPtr<EVP_PKEY>(EVP_RSA_gen(2048)));
  }
  void add_encrypted_key(const std::string& name) {
    const OpenSslPtr<EVP_PKEY> key(EVP_EC_gen("P-256"));
    std::FILE* file = std::fopen((folder_ / name).c_str(), "w");
    PEM_write_PrivateKey(file, key.get(), EVP_aes_256_cbc(), reinterpret_cast<const unsigned char*>("secret"),
                         6, nullptr, nullptr);
    std::fclose(file);
  }
  void add_text(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }

 private:
  void add(const std::string& name, const std::string& names, int days, const OpenSslPtr<EVP_PKEY>& key) {
    write(name + ".pem", certificate(key.get(), name, names, days).get());
    std::FILE* file = std::fopen((folder_ / (name + ".key")).c_str(), "w");
    PEM_write_PrivateKey(file, key.get(), nullptr, nullptr, 0, nullptr, nullptr);
    std::fclose(file);
  }
  OpenSslPtr<X509> certificate(EVP_PKEY* key, const std::string& name, const std::string& names, int days) {
    OpenSslPtr<X509> made(X509_new());
    X509_set_version(made.get(), 2);
    ASN1_INTEGER_set(X509_get_serialNumber(made.get()), ++serial_);
    X509_gmtime_adj(X509_getm_notBefore(made.get()), -2L * 86400);
    X509_gmtime_adj(X509_getm_notAfter(made.get()), days * 86400L);
    X509_set_pubkey(made.get(), key);
    X509_NAME* subject = X509_get_subject_name(made.get());
    X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    const X509* issuer = authority_ ? authority_.get() : made.get();
    X509_set_issuer_name(made.get(), X509_get_subject_name(issuer));
    extend(made.get(), NID_basic_constraints, authority_ ? "CA:FALSE" : "critical,CA:TRUE");
    if (!names.empty()) extend(made.get(), NID_subject_alt_name, names.c_str());
    X509_sign(made.get(), authority_key_.get(), EVP_sha256());
    return made;
  }
  static void extend(X509* certificate, int nid, const char* value) {
    X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value);
    X509_add_ext(certificate, extension, -1);
    X509_EXTENSION_free(extension);
  }
  void write(const std::string& name, X509* certificate) const {
    std::FILE* file = std::fopen((folder_ / name).c_str(), "w");
    PEM_write_X509(file, certificate);
    std::fclose(file);
  }

  std::filesystem::path folder_;
  OpenSslPtr<EVP_PKEY> authority_key_;
  OpenSslPtr<X509> authority_;
  long serial_ = 0;
};

class TlsClient {
 public:
  // newest: the newest version it offers. Trusts anyone: trust is tested through HttpClient.
  explicit TlsClient(std::uint16_t port, int newest = TLS1_3_VERSION, int receive_buffer = 0)
      : context_(SSL_CTX_new(TLS_client_method())) {
    SSL_CTX_set_security_level(context_.get(), 0);
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context_.get(), newest);
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const timeval patience{kPatience.count(), 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (receive_buffer > 0) ::setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return;
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), fd_);
    secured_ = SSL_connect(ssl_.get()) == 1;
  }
  ~TlsClient() {
    ssl_.reset();
    if (fd_ >= 0) ::close(fd_);
  }
  TlsClient(const TlsClient&) = delete;
  TlsClient& operator=(const TlsClient&) = delete;

  bool secured() const { return secured_; }
  int fd() const { return fd_; }
  SSL* ssl() const { return ssl_.get(); }
  bool send(std::string_view bytes) {
    return SSL_write(ssl_.get(), bytes.data(), static_cast<int>(bytes.size())) ==
           static_cast<int>(bytes.size());
  }
  // Everything so far, once it contains `mark`, or the server ended, or patience did.
  const std::string& read_until(std::string_view mark, std::size_t from = 0) {
    while (received_.find(mark, from) == std::string::npos && receive_some()) {
    }
    return received_;
  }
  const std::string& read_to_close() {
    while (receive_some()) {
    }
    return received_;
  }
  // The server said its farewell, rather than just leaving.
  bool ended_properly() const { return (SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN) != 0; }

 private:
  bool receive_some() {
    char bytes[16384];
    const int size = SSL_read(ssl_.get(), bytes, sizeof bytes);
    if (size <= 0) return false;
    received_.append(bytes, static_cast<std::size_t>(size));
    return true;
  }

  OpenSslPtr<SSL_CTX> context_;
  OpenSslPtr<SSL> ssl_;
  int fd_ = -1;
  bool secured_ = false;
  std::string received_;
};

}  // namespace shoal::wire
