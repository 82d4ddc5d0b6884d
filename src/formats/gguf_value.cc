#include "formats/gguf_value.h"

#include <cstring>
#include <limits>

namespace shoal::formats {
namespace {

template <typename T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

std::optional<std::int64_t> load_int(GgufType type, const std::byte* at) {
  switch (type) {
    case GgufType::kUint8:
      return load<std::uint8_t>(at);
    case GgufType::kInt8:
      return load<std::int8_t>(at);
    case GgufType::kUint16:
      return load<std::uint16_t>(at);
    case GgufType::kInt16:
      return load<std::int16_t>(at);
    case GgufType::kUint32:
      return load<std::uint32_t>(at);
    case GgufType::kInt32:
      return load<std::int32_t>(at);
    case GgufType::kInt64:
      return load<std::int64_t>(at);
    case GgufType::kUint64: {
      const auto value = load<std::uint64_t>(at);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) return std::nullopt;
      return static_cast<std::int64_t>(value);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> load_float(GgufType type, const std::byte* at) {
  if (type == GgufType::kFloat32) return load<float>(at);
  if (type == GgufType::kFloat64) return load<double>(at);
  if (type == GgufType::kUint64) return static_cast<double>(load<std::uint64_t>(at));
  if (const auto integer = load_int(type, at)) return static_cast<double>(*integer);
  return std::nullopt;
}

std::string_view characters(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

std::string_view gguf_type_name(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
      return "uint8";
    case GgufType::kInt8:
      return "int8";
    case GgufType::kUint16:
      return "uint16";
    case GgufType::kInt16:
      return "int16";
    case GgufType::kUint32:
      return "uint32";
    case GgufType::kInt32:
      return "int32";
    case GgufType::kFloat32:
      return "float32";
    case GgufType::kBool:
      return "bool";
    case GgufType::kString:
      return "string";
    case GgufType::kArray:
      return "array";
    case GgufType::kUint64:
      return "uint64";
    case GgufType::kInt64:
      return "int64";
    case GgufType::kFloat64:
      return "float64";
  }
  return "unknown";
}

std::size_t gguf_scalar_bytes(GgufType type) {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool:
      return 1;
    case GgufType::kUint16:
    case GgufType::kInt16:
      return 2;
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32:
      return 4;
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64:
      return 8;
    case GgufType::kString:
    case GgufType::kArray:
      return 0;
  }
  return 0;
}

std::optional<std::uint64_t> GgufValue::as_uint() const {
  if (type_ == GgufType::kUint64) return load<std::uint64_t>(bytes_.data());
  const auto value = as_int();
  if (!value || *value < 0) return std::nullopt;
  return static_cast<std::uint64_t>(*value);
}

std::optional<std::int64_t> GgufValue::as_int() const { return load_int(type_, bytes_.data()); }

std::optional<double> GgufValue::as_float() const { return load_float(type_, bytes_.data()); }

std::optional<bool> GgufValue::as_bool() const {
  if (type_ != GgufType::kBool) return std::nullopt;
  return load<std::uint8_t>(bytes_.data()) != 0;
}

std::optional<std::string_view> GgufValue::as_string() const {
  if (type_ != GgufType::kString) return std::nullopt;
  return characters(bytes_);
}

std::optional<std::vector<std::string_view>> GgufValue::as_strings() const {
  if (type_ != GgufType::kArray || element_ != GgufType::kString) return std::nullopt;
  std::vector<std::string_view> out;
  out.reserve(count_);
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < count_; ++i) {
    const auto length = static_cast<std::size_t>(load<std::uint64_t>(bytes_.data() + at));
    out.push_back(characters(bytes_.subspan(at + 8, length)));
    at += 8 + length;
  }
  return out;
}

std::optional<std::vector<std::int32_t>> GgufValue::as_int32s() const {
  if (type_ != GgufType::kArray) return std::nullopt;
  const std::size_t width = gguf_scalar_bytes(element_);
  if (width == 0) return std::nullopt;
  std::vector<std::int32_t> out;
  out.reserve(count_);
  for (std::uint64_t i = 0; i < count_; ++i) {
    const auto value = load_int(element_, bytes_.data() + i * width);
    if (!value || *value < std::numeric_limits<std::int32_t>::min() ||
        *value > std::numeric_limits<std::int32_t>::max()) {
      return std::nullopt;
    }
    out.push_back(static_cast<std::int32_t>(*value));
  }
  return out;
}

std::optional<std::vector<float>> GgufValue::as_floats() const {
  if (type_ != GgufType::kArray) return std::nullopt;
  const std::size_t width = gguf_scalar_bytes(element_);
  if (width == 0) return std::nullopt;
  std::vector<float> out;
  out.reserve(count_);
  for (std::uint64_t i = 0; i < count_; ++i) {
    const auto value = load_float(element_, bytes_.data() + i * width);
    if (!value) return std::nullopt;
    out.push_back(static_cast<float>(*value));
  }
  return out;
}

std::optional<std::vector<bool>> GgufValue::as_bools() const {
  if (type_ != GgufType::kArray || element_ != GgufType::kBool) return std::nullopt;
  std::vector<bool> out;
  out.reserve(count_);
  for (std::uint64_t i = 0; i < count_; ++i) {
    out.push_back(load<std::uint8_t>(bytes_.data() + i) != 0);
  }
  return out;
}

}  // namespace shoal::formats
