#include "formats/safetensors_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace shoal::formats {
namespace {

const char* type_name(DType type) {
  switch (type) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    default:
      return nullptr;
  }
}

}  // namespace

SafetensorsWriter::SafetensorsWriter(std::filesystem::path path) : path_(std::move(path)) {
  header_["__metadata__"] = {{"format", "pt"}};
}

SafetensorsWriter::~SafetensorsWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  std::error_code ignored;
  std::filesystem::remove(path_, ignored);
}

Status SafetensorsWriter::fail(ErrorCode code, std::string_view why) const {
  return {code, fmt::format("{}: {}", path_.string(), why)};
}

Status SafetensorsWriter::add_tensor(std::string_view name, DType type, std::span<const std::int64_t> shape) {
  const char* dtype = type_name(type);
  if (dtype == nullptr)
    return fail(ErrorCode::kInvalidArgument, fmt::format("safetensors files hold no {}", dtype_name(type)));
  if (header_.contains(name)) return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' added twice", name));
  std::int64_t bytes = block_bytes(type);
  for (const std::int64_t d : shape) {
    if (d < 0 || __builtin_mul_overflow(bytes, d, &bytes))
      return fail(ErrorCode::kInvalidArgument, fmt::format("'{}' cannot have this shape", name));
  }
  const std::uint64_t end = data_bytes_ + static_cast<std::uint64_t>(bytes);
  header_[std::string(name)] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {data_bytes_, end}}};
  data_bytes_ = end;
  return {};
}

Status SafetensorsWriter::begin() {
  fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) return fail(ErrorCode::kIo, fmt::format("cannot create: {}", std::strerror(errno)));
  std::string header = header_.dump();
  header.resize((header.size() + 7) / 8 * 8, ' ');  // so that the data starts at a multiple of 8
  const std::uint64_t length = header.size();
  SHOAL_TRY(write(std::as_bytes(std::span(&length, 1))));
  SHOAL_TRY(write(std::as_bytes(std::span(header.data(), header.size()))));
  written_ = 0;
  return {};
}

Status SafetensorsWriter::write(std::span<const std::byte> bytes) {
  written_ += bytes.size();
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0)
      return fail(ErrorCode::kIo, fmt::format("cannot write: {}", std::strerror(n < 0 ? errno : EIO)));
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

Status SafetensorsWriter::finish() {
  if (written_ != data_bytes_) {
    return fail(ErrorCode::kInvalidArgument,
                fmt::format("{} bytes written, {} promised", written_, data_bytes_));
  }
  if (::close(std::exchange(fd_, -1)) != 0)
    return fail(ErrorCode::kIo, fmt::format("cannot write: {}", std::strerror(errno)));
  return {};
}

}  // namespace shoal::formats
