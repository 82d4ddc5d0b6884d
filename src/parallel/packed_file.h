// The packed matrices of one shard in a file: written once, then mapped by every later start and by every
// rank of the host that holds the same shard, which so share the memory.
//
// The file: a header, the checksums of its pieces, then the matrices, each at a page of its own. It is
// written and checked in pieces that end at multiples of 4 MiB whatever lies in them: so file systems that
// can keep 2 MiB together do, and decode reads it as fast as memory of its own.
//
// Thread-safety: a file is immutable; a writer belongs to one thread, which takes part in the pool it is
//   given.
// Ownership: a file owns its mapping. A writer owns its temporary file, which goes with it.
// Invariants:
//   1. A file has its name only once it is whole. A writer that is killed leaves a temporary file that nobody
//      opens and the next writer in that folder removes.
//   2. open() gives a file whose every byte has been checked, or none.
//   3. A file that is removed while it is mapped stays until the last mapping ends. One that is cut short
//      then raises SIGBUS, as with every mapping.
// Errors: one sentence with the file and the reason. kNotFound: there is none.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/expected.h"
#include "core/mapped_file.h"
#include "core/thread_pool.h"
#include "formats/fingerprint.h"
#include "tensor/buffer.h"

namespace shoal::parallel {

// Where everything lies, which follows from the sizes alone.
class PackedFileLayout {
 public:
  struct Piece {
    std::size_t offset = 0;
    std::size_t length = 0;
  };

  // key: of everything that decides what the bytes are; two files of one key are the same.
  PackedFileLayout(formats::Fingerprint key, std::vector<std::size_t> matrix_bytes);

  const formats::Fingerprint& key() const { return key_; }
  // "0123456789abcdef0123456789abcdef.packed".
  std::string file_name() const { return key_.hex() + ".packed"; }
  std::size_t matrices() const { return matrices_.size(); }
  const Piece& matrix(std::size_t i) const { return matrices_[i]; }
  // What a checksum covers: all from the first matrix to the end.
  std::size_t pieces() const { return (file_bytes_ + kPieceBytes - 1) / kPieceBytes; }
  Piece piece(std::size_t i) const;
  std::size_t file_bytes() const { return file_bytes_; }

  static constexpr std::size_t kPieceBytes = std::size_t{4} << 20;

 private:
  formats::Fingerprint key_;
  std::vector<Piece> matrices_;
  std::size_t begin_ = 0;
  std::size_t file_bytes_ = 0;
};

class PackedFile {
 public:
  using Progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

  // Reads all of the file once, on all threads of the pool. progress: of that, on the calling thread.
  static Expected<PackedFile> open(const std::filesystem::path& folder, PackedFileLayout layout,
                                   ThreadPool& pool, const Progress& progress = {});

  const PackedFileLayout& layout() const { return layout_; }
  std::span<const std::byte> matrix(std::size_t i) const;

 private:
  PackedFile(PackedFileLayout layout, MappedFile file) : layout_(std::move(layout)), file_(std::move(file)) {}

  PackedFileLayout layout_;
  MappedFile file_;
};

class PackedFileWriter {
 public:
  // Makes the folder where there is none. Fails with kExhausted where the disk has no room for the file.
  static Expected<PackedFileWriter> begin(const std::filesystem::path& folder, PackedFileLayout layout);

  PackedFileWriter(PackedFileWriter&& other) noexcept;
  PackedFileWriter& operator=(PackedFileWriter&&) = delete;
  ~PackedFileWriter();

  const PackedFileLayout& layout() const { return layout_; }
  // The next matrix, of the size that the layout says.
  Status append(std::span<const std::byte> matrix, ThreadPool& pool);
  // After the last: gives the file its name. A file that has it already stays, being the same, but for a
  // damaged one, which is `replace`d.
  Status commit(bool replace);

 private:
  PackedFileWriter(std::filesystem::path folder, PackedFileLayout layout, Buffer border);
  Status create();
  Status reserve() const;
  // Bytes that end before their piece does, or begin after it.
  void keep(std::span<const std::byte> bytes, std::size_t at);
  Status write_piece(std::size_t i, std::span<const std::byte> bytes);

  std::filesystem::path folder_;
  PackedFileLayout layout_;
  std::filesystem::path path_;  // the temporary file; empty once it has its name
  int fd_ = -1;
  std::size_t next_ = 0;
  Buffer border_;  // a piece that holds the end of one matrix and the beginning of the next
  std::vector<std::uint64_t> checksums_;
};

}  // namespace shoal::parallel
