#include "cli/token_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

#include "core/log.h"

namespace shoal::cli {
namespace {

// errno, or 0.
int write_whole(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return ::fsync(fd) == 0 ? 0 : errno;
}

}  // namespace

Expected<wire::ClusterToken> load_token(const std::filesystem::path& file) {
  SHOAL_ASSIGN(token, wire::ClusterToken::load(file));
  struct stat info {};
  if (::stat(file.c_str(), &info) == 0 && (info.st_mode & (S_IRGRP | S_IROTH)) != 0)
    log(LogLevel::kWarn, "token.exposed", "file=\"{}\" mode={:o} reason=\"others can read it: chmod 600\"",
        file.string(), info.st_mode & 0777U);
  return token;
}

Status ensure_token(const std::filesystem::path& file) {
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored)) return load_token(file).status();
  SHOAL_ASSIGN(token, wire::ClusterToken::draw());
  std::string temporary = file.string() + ".XXXXXX";
  const int fd = ::mkostemp(temporary.data(), O_CLOEXEC);  // 0600
  int error = fd < 0 ? errno : write_whole(fd, token.secret() + "\n");
  if (fd >= 0) ::close(fd);
  if (error == 0 && ::rename(temporary.c_str(), file.c_str()) != 0) error = errno;
  if (error == 0) return {};
  if (fd >= 0) ::unlink(temporary.c_str());
  return {ErrorCode::kIo, fmt::format("{} cannot be written: {}", file.string(), std::strerror(error))};
}

}  // namespace shoal::cli
