// One metadata value of a GGUF file: a typed view of bytes that lie in the file.
//
// Thread-safety: values; const functions may be called from any thread.
// Ownership: owns nothing. The bytes, and every string_view taken from them, belong to the file.
// Invariants: the reader has walked the bytes once; an array's elements lie wholly inside them, and arrays
//   hold no arrays. Numbers are little-endian and not aligned.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace shoal::formats {

// Numbered as in the file.
enum class GgufType : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// "uint32", "array".
std::string_view gguf_type_name(GgufType type);
// Bytes of one scalar; 0 for strings and arrays, whose length stands in the file.
std::size_t gguf_scalar_bytes(GgufType type);

class GgufValue {
 public:
  // A scalar or a string: bytes are the number's, or the string's characters without the length.
  GgufValue(GgufType type, std::span<const std::byte> bytes) : type_(type), bytes_(bytes) {}
  // An array: bytes are the packed elements.
  static GgufValue array(GgufType element, std::uint64_t count, std::span<const std::byte> bytes) {
    GgufValue value(GgufType::kArray, bytes);
    value.element_ = element;
    value.count_ = count;
    return value;
  }

  GgufType type() const { return type_; }
  GgufType element_type() const { return element_; }
  // Elements of an array; 1 for anything else.
  std::uint64_t count() const { return type_ == GgufType::kArray ? count_ : 1; }
  std::span<const std::byte> bytes() const { return bytes_; }

  // Nothing where the value is of another kind or does not fit: a negative number is no uint, a float no
  // integer. Every integer width is accepted, since writers differ in the one they take.
  std::optional<std::uint64_t> as_uint() const;
  std::optional<std::int64_t> as_int() const;
  // float32, float64 or an integer, as the nearest double.
  std::optional<double> as_float() const;
  std::optional<bool> as_bool() const;
  std::optional<std::string_view> as_string() const;

  // Arrays, copied element by element: numbers in the file are not aligned. Each takes at most twice the
  // bytes that it has in the file.
  std::optional<std::vector<std::string_view>> as_strings() const;
  std::optional<std::vector<std::int32_t>> as_int32s() const;
  std::optional<std::vector<float>> as_floats() const;
  std::optional<std::vector<bool>> as_bools() const;

 private:
  GgufType type_;
  GgufType element_ = GgufType::kUint8;
  std::uint64_t count_ = 0;
  std::span<const std::byte> bytes_;
};

}  // namespace shoal::formats
