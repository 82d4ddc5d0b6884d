#include "parallel/packed_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <numeric>
#include <optional>
#include <string_view>

#include "kernels/pack_layout.h"

namespace shoal::parallel {
namespace {

static_assert(std::endian::native == std::endian::little);

// Matrices begin at pages, as mappings do.
constexpr std::size_t kPage = 4096;
constexpr std::size_t kPieceBytes = PackedFileLayout::kPieceBytes;
constexpr char kMagic[8] = {'s', 'h', 'o', 'a', 'l', 'p', 'k', 'w'};
constexpr std::uint32_t kFormat = 1;

struct Header {
  char magic[8];
  std::uint32_t format;
  std::uint32_t packing;  // kernels::kPackingVersion
  std::uint64_t key_high;
  std::uint64_t key_low;
  std::uint64_t file_bytes;
  std::uint64_t matrices;
  std::uint64_t pieces;
  std::uint64_t checksum_of_checksums;
  std::uint64_t checksum;  // of the fields above
};
static_assert(sizeof(Header) == 72);

std::uint64_t checksum_of(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

Header header_of(const PackedFileLayout& layout, std::span<const std::uint64_t> checksums) {
  Header header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.format = kFormat;
  header.packing = kernels::kPackingVersion;
  header.key_high = layout.key().high;
  header.key_low = layout.key().low;
  header.file_bytes = layout.file_bytes();
  header.matrices = layout.matrices();
  header.pieces = checksums.size();
  header.checksum_of_checksums = checksum_of(std::as_bytes(checksums));
  header.checksum = XXH3_64bits(&header, offsetof(Header, checksum));
  return header;
}

Status io_error(const std::filesystem::path& path, const char* what) {
  const bool full = errno == ENOSPC || errno == EDQUOT;
  return {full ? ErrorCode::kExhausted : ErrorCode::kIo,
          fmt::format("{}: {}: {}", path.string(), what, std::strerror(errno))};
}

Status write_all(int fd, std::span<const std::byte> bytes, std::size_t offset,
                 const std::filesystem::path& path) {
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n =
        ::pwrite(fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return io_error(path, "cannot write");
    done += static_cast<std::size_t>(n);
  }
  return {};
}

// Why the file is not what the layout describes; the checksums of its pieces where it may be.
Expected<std::vector<std::uint64_t>> read_header(std::span<const std::byte> file,
                                                 const PackedFileLayout& layout) {
  const auto corrupt = [](const char* reason) { return Status(ErrorCode::kCorrupt, reason); };
  Header header;
  if (file.size() < sizeof(header)) return corrupt("it is too short for a header");
  std::memcpy(&header, file.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0)
    return corrupt("it is no file of packed weights");
  if (header.format != kFormat || header.packing != kernels::kPackingVersion)
    return corrupt("another version of shoal wrote it");
  if (header.checksum != XXH3_64bits(&header, offsetof(Header, checksum)))
    return corrupt("its header is damaged");
  if (header.key_high != layout.key().high || header.key_low != layout.key().low ||
      header.matrices != layout.matrices() || header.pieces != layout.pieces() ||
      header.file_bytes != layout.file_bytes())
    return corrupt("it holds the weights of something else");
  if (file.size() != layout.file_bytes()) return corrupt("its length is not what its header says");
  std::vector<std::uint64_t> checksums(layout.pieces());
  std::memcpy(checksums.data(), file.data() + sizeof(header), checksums.size() * sizeof(std::uint64_t));
  if (header.checksum_of_checksums != checksum_of(std::as_bytes(std::span(checksums))))
    return corrupt("its checksums are damaged");
  return checksums;
}

// Temporary files whose writer has gone: it holds a lock while it lives.
void remove_abandoned(const std::filesystem::path& folder) {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
    const std::string name = entry.path().filename().string();
    if (name.find(".packed.") == std::string::npos || !name.ends_with(".tmp")) continue;
    const int fd = ::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (fd < 0) continue;
    if (::flock(fd, LOCK_EX | LOCK_NB) == 0) ::unlink(entry.path().c_str());
    ::close(fd);
  }
}

}  // namespace

PackedFileLayout::PackedFileLayout(formats::Fingerprint key, std::vector<std::size_t> matrix_bytes)
    : key_(key) {
  const auto aligned = [](std::size_t at) { return (at + kPage - 1) / kPage * kPage; };
  // Room for the checksums of all that follows, and of the pieces that the checksums themselves begin.
  std::size_t all = 0;
  for (const std::size_t bytes : matrix_bytes) all += aligned(bytes);
  const std::size_t most_pieces = all / kPieceBytes + 2 + all / kPieceBytes / (kPieceBytes / 16);
  begin_ = file_bytes_ = aligned(sizeof(Header) + most_pieces * sizeof(std::uint64_t));
  for (const std::size_t bytes : matrix_bytes) {
    matrices_.push_back({aligned(file_bytes_), bytes});
    file_bytes_ = matrices_.back().offset + bytes;
  }
}

PackedFileLayout::Piece PackedFileLayout::piece(std::size_t i) const {
  const std::size_t begin = std::max(i * kPieceBytes, begin_);
  const std::size_t end = std::min((i + 1) * kPieceBytes, file_bytes_);
  return {begin, end > begin ? end - begin : 0};
}

Expected<PackedFile> PackedFile::open(const std::filesystem::path& folder, PackedFileLayout layout,
                                      ThreadPool& pool, const Progress& progress) {
  const std::filesystem::path path = folder / layout.file_name();
  SHOAL_ASSIGN(file, MappedFile::open(path));
  const auto bytes = file.bytes();
  const auto refused = [&](const std::string& reason) {
    return Status(ErrorCode::kCorrupt, fmt::format("{}: {}", path.string(), reason));
  };
  auto checksums = read_header(bytes, layout);
  if (!checksums) return refused(checksums.error().message());
  file.prefer_huge_pages();
  file.touch();
  const std::size_t pieces = layout.pieces();
  std::atomic<bool> sound{true};
  // Between two calls of progress 16 pieces a thread: a hundredth of a second from memory.
  const auto at_once = static_cast<std::size_t>(pool.size()) * 16;
  for (std::size_t first = 0; first < pieces && sound.load(); first += at_once) {
    const std::size_t last = std::min(first + at_once, pieces);
    pool.parallel_for(static_cast<std::int64_t>(last - first), 4,
                      [&](std::int64_t begin, std::int64_t end, int) {
                        for (auto i = first + static_cast<std::size_t>(begin);
                             i < first + static_cast<std::size_t>(end); ++i) {
                          const auto piece = layout.piece(i);
                          const auto after = layout.piece(i + 1);
                          if (after.length > 0) file.will_need(after.offset, after.length);
                          if (checksum_of(bytes.subspan(piece.offset, piece.length)) != (*checksums)[i])
                            sound.store(false);
                        }
                      });
    if (progress) progress(last, pieces);
  }
  if (!sound.load()) return refused("its weights are damaged");
  return PackedFile(std::move(layout), std::move(file));
}

std::span<const std::byte> PackedFile::matrix(std::size_t i) const {
  return file_.bytes().subspan(layout_.matrix(i).offset, layout_.matrix(i).length);
}

PackedFileWriter::PackedFileWriter(std::filesystem::path folder, PackedFileLayout layout, Buffer border)
    : folder_(std::move(folder)),
      layout_(std::move(layout)),
      border_(std::move(border)),
      checksums_(layout_.pieces()) {}

PackedFileWriter::PackedFileWriter(PackedFileWriter&& other) noexcept
    : folder_(std::move(other.folder_)),
      layout_(std::move(other.layout_)),
      path_(std::exchange(other.path_, {})),
      fd_(std::exchange(other.fd_, -1)),
      next_(other.next_),
      border_(std::move(other.border_)),
      checksums_(std::move(other.checksums_)) {}

PackedFileWriter::~PackedFileWriter() {
  if (!path_.empty()) ::unlink(path_.c_str());
  if (fd_ >= 0) ::close(fd_);
}

Expected<PackedFileWriter> PackedFileWriter::begin(const std::filesystem::path& folder,
                                                   PackedFileLayout layout) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return Status(ErrorCode::kIo,
                  fmt::format("{}: cannot make the folder: {}", folder.string(), error.message()));
  }
  remove_abandoned(folder);
  SHOAL_ASSIGN(border, Buffer::allocate(kPieceBytes, "writing packed weights"));
  PackedFileWriter writer(folder, std::move(layout), std::move(border));
  SHOAL_TRY(writer.create());
  SHOAL_TRY(writer.reserve());
  return writer;
}

Status PackedFileWriter::create() {
  const std::string stem = fmt::format("{}.{}.", (folder_ / layout_.file_name()).string(), ::getpid());
  // A name may be another thread's, and another process may take the file for abandoned before it is locked.
  for (int attempt = 0; attempt < 1000; ++attempt) {
    const std::filesystem::path path = fmt::format("{}{}.tmp", stem, attempt);
    fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0644);
    if (fd_ < 0 && errno == EEXIST) continue;
    if (fd_ < 0) return io_error(path, "cannot make the file");
    struct stat info {};
    if (::flock(fd_, LOCK_EX | LOCK_NB) == 0 && ::fstat(fd_, &info) == 0 && info.st_nlink > 0) {
      path_ = path;
      return {};
    }
    ::close(std::exchange(fd_, -1));
  }
  return {ErrorCode::kIo, fmt::format("{}0.tmp: cannot make such a file", stem)};
}

// Room for the whole file at once, rather than a full disk in its midst.
Status PackedFileWriter::reserve() const {
  if (::fallocate(fd_, 0, 0, static_cast<off_t>(layout_.file_bytes())) == 0) return {};
  // Some file systems cannot.
  if (errno == EOPNOTSUPP || errno == EINTR || errno == ENOSYS) return {};
  return io_error(path_, fmt::format("cannot take {} MiB", layout_.file_bytes() >> 20).c_str());
}

void PackedFileWriter::keep(std::span<const std::byte> bytes, std::size_t at) {
  if (!bytes.empty()) std::memcpy(border_.data() + at % kPieceBytes, bytes.data(), bytes.size());
}

Status PackedFileWriter::write_piece(std::size_t i, std::span<const std::byte> bytes) {
  checksums_[i] = checksum_of(bytes);
  return write_all(fd_, bytes, layout_.piece(i).offset, path_);
}

Status PackedFileWriter::append(std::span<const std::byte> matrix, ThreadPool& pool) {
  if (next_ == layout_.matrices() || matrix.size() != layout_.matrix(next_).length)
    return {ErrorCode::kInternal, fmt::format("{}: matrix {} has another size", path_.string(), next_)};
  const std::size_t begin = layout_.matrix(next_++).offset;
  const std::size_t end = begin + matrix.size();
  // Pieces that are complete with this matrix and the zeros behind it.
  const bool last = next_ == layout_.matrices();
  const std::size_t pieces_end = last ? layout_.pieces() : layout_.matrix(next_).offset / kPieceBytes;
  std::size_t whole_begin = pieces_end;  // those that lie in it from end to end
  std::size_t whole_end = pieces_end;
  for (std::size_t i = begin / kPieceBytes; i < pieces_end; ++i) {
    const auto piece = layout_.piece(i);
    if (piece.offset < begin || piece.offset + piece.length > end) continue;
    whole_begin = std::min(whole_begin, i);
    whole_end = i + 1;
  }
  const auto finish_border = [&](std::size_t i) {
    const auto piece = layout_.piece(i);
    const std::size_t from = std::max(piece.offset, begin);
    keep(matrix.subspan(from - begin, std::min(piece.offset + piece.length, end) - from), from);
    Status written = write_piece(i, {border_.data() + piece.offset % kPieceBytes, piece.length});
    std::memset(border_.data(), 0, kPieceBytes);
    return written;
  };
  std::size_t i = begin / kPieceBytes;
  for (; i < whole_begin; ++i) SHOAL_TRY(finish_border(i));
  std::vector<Status> failed(static_cast<std::size_t>(pool.size()));
  pool.parallel_for(static_cast<std::int64_t>(whole_end - whole_begin), 1,
                    [&](std::int64_t from, std::int64_t to, int thread) {
                      for (std::int64_t w = from; w < to; ++w) {
                        const std::size_t at = whole_begin + static_cast<std::size_t>(w);
                        const auto piece = layout_.piece(at);
                        Status written = write_piece(at, matrix.subspan(piece.offset - begin, piece.length));
                        if (!written.ok()) failed[static_cast<std::size_t>(thread)] = std::move(written);
                      }
                    });
  for (const Status& status : failed) SHOAL_TRY(status);
  for (i = std::max(i, whole_end); i < pieces_end; ++i) SHOAL_TRY(finish_border(i));
  if (const std::size_t rest = std::max(pieces_end * kPieceBytes, begin); rest < end)
    keep(matrix.subspan(rest - begin), rest);
  return {};
}

Status PackedFileWriter::commit(bool replace) {
  if (next_ != layout_.matrices())
    return {ErrorCode::kInternal, fmt::format("{}: matrices are missing", path_.string())};
  const Header header = header_of(layout_, checksums_);
  SHOAL_TRY(write_all(fd_, std::as_bytes(std::span(checksums_)), sizeof(header), path_));
  SHOAL_TRY(write_all(fd_, std::as_bytes(std::span(&header, 1)), 0, path_));
  // Not synchronised with the disk: what a power failure leaves half written the checksums tell.
  // Others map it: nobody is to write it again. Whom the umask kept from reading stays kept, and a file
  // system that knows no modes serves as well.
  struct stat info {};
  if (::fstat(fd_, &info) == 0) (void)!::fchmod(fd_, info.st_mode & 0444);
  const std::filesystem::path name = folder_ / layout_.file_name();
  int rc = ::renameat2(AT_FDCWD, path_.c_str(), AT_FDCWD, name.c_str(), replace ? 0 : RENAME_NOREPLACE);
  if (rc != 0 && errno == EEXIST) return {};  // the temporary one goes with this object
  if (rc != 0 && (errno == EINVAL || errno == ENOSYS)) rc = ::rename(path_.c_str(), name.c_str());
  if (rc != 0) return io_error(path_, "cannot name the file");
  path_.clear();
  return {};
}

}  // namespace shoal::parallel
