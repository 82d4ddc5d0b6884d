#include "formats/gguf_writer.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <utility>

namespace shoal::formats {
namespace {

constexpr std::uint32_t kDefaultAlignment = 32;

std::uint64_t aligned(std::uint64_t value, std::uint64_t alignment) {
  return (value + alignment - 1) / alignment * alignment;
}

template <typename T>
void append(std::vector<std::byte>& out, T value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

void append_text(std::vector<std::byte>& out, std::string_view text) {
  append(out, static_cast<std::uint64_t>(text.size()));
  const auto bytes = std::as_bytes(std::span(text.data(), text.size()));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace

GgufWriter::GgufWriter(std::filesystem::path path, std::uint32_t alignment)
    : path_(std::move(path)), part_(path_.string() + ".part"), alignment_(alignment) {
  if (!std::has_single_bit(alignment) || alignment < 8) {
    fail(ErrorCode::kInvalidArgument,
         fmt::format("alignment {} is no power of two of at least 8", alignment));
    alignment_ = kDefaultAlignment;
  }
  if (alignment_ != kDefaultAlignment) add_uint32("general.alignment", alignment_);
}

GgufWriter::~GgufWriter() {
  if (fd_ < 0) return;
  ::close(fd_);
  std::error_code ignored;
  std::filesystem::remove(part_, ignored);
}

void GgufWriter::fail(ErrorCode code, std::string message) {
  if (status_.ok()) status_ = Status(code, fmt::format("{}: {}", path_.string(), message));
}

void GgufWriter::key(std::string_view name, GgufType type) {
  if (name.empty() || !names_.insert(fmt::format("k{}", name)).second) {
    fail(ErrorCode::kInvalidArgument, fmt::format("metadata key '{}' is empty or added twice", name));
  }
  ++entries_;
  put_text(name);
  put(static_cast<std::uint32_t>(type));
}

void GgufWriter::put_text(std::string_view text) { append_text(metadata_, text); }

void GgufWriter::add_string(std::string_view name, std::string_view value) {
  key(name, GgufType::kString);
  put_text(value);
}

void GgufWriter::add_strings(std::string_view name, std::span<const std::string> values) {
  key(name, GgufType::kArray);
  put(static_cast<std::uint32_t>(GgufType::kString));
  put(static_cast<std::uint64_t>(values.size()));
  for (const std::string& value : values) put_text(value);
}

void GgufWriter::add_int32s(std::string_view name, std::span<const std::int32_t> values) {
  key(name, GgufType::kArray);
  put(static_cast<std::uint32_t>(GgufType::kInt32));
  put(static_cast<std::uint64_t>(values.size()));
  put_bytes(std::as_bytes(values));
}

void GgufWriter::add_float32s(std::string_view name, std::span<const float> values) {
  key(name, GgufType::kArray);
  put(static_cast<std::uint32_t>(GgufType::kFloat32));
  put(static_cast<std::uint64_t>(values.size()));
  put_bytes(std::as_bytes(values));
}

void GgufWriter::add_value(std::string_view name, const GgufValue& value) {
  key(name, value.type());
  if (value.type() == GgufType::kArray) {
    put(static_cast<std::uint32_t>(value.element_type()));
    put(value.count());
  } else if (value.type() == GgufType::kString) {
    put(static_cast<std::uint64_t>(value.bytes().size()));
  }
  put_bytes(value.bytes());
}

void GgufWriter::add_tensor(std::string_view name, DType type, std::span<const std::int64_t> dims) {
  if (name.empty() || !names_.insert(fmt::format("t{}", name)).second) {
    fail(ErrorCode::kInvalidArgument, fmt::format("tensor '{}' has no name or is added twice", name));
    return;
  }
  if (dims.empty() || dims.size() > 4 ||
      std::any_of(dims.begin(), dims.end(), [](auto d) { return d < 1; }) ||
      dims[0] % block_elements(type) != 0) {
    fail(ErrorCode::kInvalidArgument,
         fmt::format("tensor '{}' cannot have this shape with type {}", name, dtype_name(type)));
    return;
  }
  std::int64_t blocks = dims[0] / block_elements(type);
  std::int64_t bytes = 0;
  for (const std::int64_t d : dims.subspan(1)) {
    if (__builtin_mul_overflow(blocks, d, &blocks)) blocks = std::numeric_limits<std::int64_t>::max();
  }
  if (__builtin_mul_overflow(blocks, block_bytes(type), &bytes)) {
    fail(ErrorCode::kInvalidArgument, fmt::format("tensor '{}' has more bytes than 63 bits can count", name));
    return;
  }
  append_text(table_, name);
  append(table_, static_cast<std::uint32_t>(dims.size()));
  for (const std::int64_t d : dims) append(table_, d);
  append(table_, static_cast<std::uint32_t>(type));
  append(table_, data_bytes_);
  slots_.push_back({std::string(name), data_bytes_, data_bytes_ + static_cast<std::uint64_t>(bytes)});
  data_bytes_ = aligned(slots_.back().end, alignment_);
}

Status GgufWriter::begin() {
  SHOAL_TRY(status_);
  if (fd_ >= 0) {
    fail(ErrorCode::kInvalidArgument, "begun twice");
    return status_;
  }
  fd_ = ::open(part_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    fail(ErrorCode::kIo, fmt::format("cannot create {}: {}", part_.string(), std::strerror(errno)));
    return status_;
  }
  std::vector<std::byte> header;
  for (const char c : std::string_view("GGUF")) header.push_back(static_cast<std::byte>(c));
  append(header, std::uint32_t{3});
  append(header, static_cast<std::uint64_t>(slots_.size()));
  append(header, entries_);
  header.insert(header.end(), metadata_.begin(), metadata_.end());
  header.insert(header.end(), table_.begin(), table_.end());
  header.resize(aligned(header.size(), alignment_));
  return write_all(header);
}

Status GgufWriter::write(std::span<const std::byte> bytes) {
  SHOAL_TRY(status_);
  if (fd_ < 0) {
    fail(ErrorCode::kInvalidArgument, "written before begin()");
    return status_;
  }
  while (!bytes.empty()) {
    if (current_ == slots_.size()) {
      fail(ErrorCode::kInvalidArgument, fmt::format("{} bytes more than the tensors take", bytes.size()));
      return status_;
    }
    const Slot& slot = slots_[current_];
    SHOAL_TRY(pad_to(slot.begin));
    const std::size_t take = std::min<std::uint64_t>(bytes.size(), slot.end - position_);
    SHOAL_TRY(write_all(bytes.first(take)));
    position_ += take;
    bytes = bytes.subspan(take);
    if (position_ == slot.end) ++current_;
  }
  return {};
}

Status GgufWriter::finish() {
  SHOAL_TRY(status_);
  if (fd_ < 0) {
    fail(ErrorCode::kInvalidArgument, "finished before begin()");
    return status_;
  }
  if (current_ != slots_.size()) {
    fail(ErrorCode::kInvalidArgument,
         fmt::format("tensor '{}' was not written whole", slots_[current_].name));
    return status_;
  }
  SHOAL_TRY(pad_to(data_bytes_));
  const int closed = ::close(std::exchange(fd_, -1));
  if (closed != 0) {
    fail(ErrorCode::kIo, fmt::format("cannot write {}: {}", part_.string(), std::strerror(errno)));
    return status_;
  }
  std::error_code error;
  std::filesystem::rename(part_, path_, error);
  if (error) fail(ErrorCode::kIo, fmt::format("cannot take its name: {}", error.message()));
  return status_;
}

Status GgufWriter::pad_to(std::uint64_t position) {
  if (position_ >= position) return {};
  const std::vector<std::byte> zeros(static_cast<std::size_t>(position - position_));
  position_ = position;
  return write_all(zeros);
}

Status GgufWriter::write_all(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      fail(ErrorCode::kIo,
           fmt::format("cannot write {}: {}", part_.string(), std::strerror(n < 0 ? errno : EIO)));
      return status_;
    }
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
  return {};
}

}  // namespace shoal::formats
