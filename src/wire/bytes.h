// Little-endian fields of the messages in docs/wire.md, section 1, written and read.
//
// Thread-safety: none; one writer or reader belongs to one message.
// Ownership: a ByteWriter owns its bytes; a ByteReader borrows them.
// Invariants: a reader never reads past its bytes and never gives out memory for a count that they cannot
//   hold; after the first misfit all further reads give zeros and ok() is false (W2).

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace shoal::wire {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian, and so are our hosts");

class ByteWriter {
 public:
  template <typename T>
  requires std::is_arithmetic_v<T>
  void put(T value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof value);
  }
  void put_bytes(std::span<const std::byte> bytes) {
    bytes_.insert(bytes_.end(), bytes.begin(), bytes.end());
  }
  void put_string(std::string_view text) {
    put(static_cast<std::uint32_t>(text.size()));
    put_bytes(std::as_bytes(std::span(text)));
  }
  // write(element) for each.
  template <typename List, typename F>
  void put_list(const List& list, F&& write) {
    put(static_cast<std::uint32_t>(list.size()));
    for (const auto& element : list) write(element);
  }
  template <typename T>
  requires std::is_arithmetic_v<T>
  void put_list(const std::vector<T>& list) {
    put(static_cast<std::uint32_t>(list.size()));
    put_bytes(std::as_bytes(std::span(list)));
  }

  std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  // All fields were there.
  bool ok() const { return ok_; }
  // And nothing is left over.
  bool done() const { return ok_ && bytes_.empty(); }
  void fail() {
    ok_ = false;
    bytes_ = {};
  }

  template <typename T>
  requires std::is_arithmetic_v<T> T get() {
    T value{};
    if (bytes_.size() < sizeof value) {
      fail();
      return value;
    }
    std::memcpy(&value, bytes_.data(), sizeof value);
    bytes_ = bytes_.subspan(sizeof value);
    return value;
  }
  template <typename T>
  requires std::is_arithmetic_v<T>
  void get(T& value) { value = get<T>(); }
  // 0 or 1; anything else does not fit.
  bool get_flag() {
    const auto value = get<std::uint8_t>();
    if (value > 1) fail();
    return value == 1;
  }
  std::string get_string() {
    const std::size_t n = get_count(1);
    std::string text(reinterpret_cast<const char*>(bytes_.data()), n);
    bytes_ = bytes_.subspan(n);
    return text;
  }
  void get_bytes(std::span<std::byte> to) {
    if (bytes_.size() < to.size()) return fail();
    std::memcpy(to.data(), bytes_.data(), to.size());
    bytes_ = bytes_.subspan(to.size());
  }
  // read(element) for each; an element has at least least_bytes.
  template <typename T, typename F>
  void get_list(std::vector<T>& list, std::size_t least_bytes, F&& read) {
    const std::size_t n = get_count(least_bytes);
    list.clear();
    for (std::size_t i = 0; i < n && ok_; ++i) read(list.emplace_back());
  }
  template <typename T>
  requires std::is_arithmetic_v<T>
  void get_list(std::vector<T>& list) {
    const std::size_t n = get_count(sizeof(T));
    list.resize(n);
    if (n == 0) return;
    std::memcpy(list.data(), bytes_.data(), n * sizeof(T));
    bytes_ = bytes_.subspan(n * sizeof(T));
  }

 private:
  std::size_t get_count(std::size_t element_bytes) {
    const std::size_t n = get<std::uint32_t>();
    if (n > bytes_.size() / element_bytes) fail();
    return ok_ ? n : 0;
  }

  std::span<const std::byte> bytes_;
  bool ok_ = true;
};

}  // namespace shoal::wire
