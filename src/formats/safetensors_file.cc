#include "formats/safetensors_file.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <string_view>
#include <unordered_set>
#include <utility>

#include "formats/gguf_file.h"

namespace shoal::formats {
namespace {

using JsonElement = simdjson::dom::element;
using JsonObject = simdjson::dom::object;
using JsonArray = simdjson::dom::array;

constexpr std::uint64_t kLengthBytes = 8;
// The reference reader's own limit.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kMaxDimensions = 8;

struct ElementType {
  std::string_view name;
  std::int64_t bits;
  std::optional<DType> type;
};

constexpr std::array kElementTypes = {
    ElementType{"F32", 32, DType::kF32},     ElementType{"F16", 16, DType::kF16},
    ElementType{"BF16", 16, DType::kBF16},   ElementType{"F64", 64, std::nullopt},
    ElementType{"I64", 64, std::nullopt},    ElementType{"I32", 32, std::nullopt},
    ElementType{"I16", 16, std::nullopt},    ElementType{"I8", 8, std::nullopt},
    ElementType{"U64", 64, std::nullopt},    ElementType{"U32", 32, std::nullopt},
    ElementType{"U16", 16, std::nullopt},    ElementType{"U8", 8, std::nullopt},
    ElementType{"BOOL", 8, std::nullopt},    ElementType{"F8_E4M3", 8, std::nullopt},
    ElementType{"F8_E5M2", 8, std::nullopt}, ElementType{"F8_E8M0", 8, std::nullopt},
    ElementType{"C64", 64, std::nullopt},    ElementType{"F4", 4, std::nullopt},
    ElementType{"F6_E2M3", 6, std::nullopt}, ElementType{"F6_E3M2", 6, std::nullopt},
};

const ElementType* find_type(std::string_view name) {
  const auto* found = std::find_if(kElementTypes.begin(), kElementTypes.end(),
                                   [&](const ElementType& t) { return t.name == name; });
  return found == kElementTypes.end() ? nullptr : found;
}

}  // namespace

class SafetensorsFile::Parser {
 public:
  explicit Parser(SafetensorsFile& file) : file_(file) {}

  Status run() {
    SHOAL_TRY(read_length());
    const auto text = file_.bytes_.subspan(kLengthBytes, file_.header_size_ - kLengthBytes);
    simdjson::dom::parser parser;
    JsonObject header;
    const auto error =
        parser.parse(reinterpret_cast<const char*>(text.data()), text.size()).get_object().get(header);
    if (error != simdjson::SUCCESS) {
      return corrupt("the header is no JSON object: {}", simdjson::error_message(error));
    }
    SHOAL_TRY(read_header(header));
    return check_cover();
  }

 private:
  template <typename... Args>
  Status corrupt(fmt::format_string<Args...> text, Args&&... args) const {
    return {ErrorCode::kCorrupt,
            fmt::format("{}: {}", file_.name_, fmt::format(text, std::forward<Args>(args)...))};
  }

  Status read_length() {
    if (file_.bytes_.size() < kLengthBytes) {
      return corrupt("not a safetensors file: {} bytes cannot hold the length of a header",
                     file_.bytes_.size());
    }
    std::uint64_t length = 0;
    std::memcpy(&length, file_.bytes_.data(), kLengthBytes);
    const std::uint64_t left = file_.bytes_.size() - kLengthBytes;
    if (length > kMaxHeaderBytes)
      return corrupt("the header is said to be {} bytes long, the limit is {}", length, kMaxHeaderBytes);
    if (length > left)
      return corrupt("the header is said to be {} bytes long, but the file has {} left", length, left);
    file_.header_size_ = static_cast<std::size_t>(kLengthBytes + length);
    return {};
  }

  Status read_header(JsonObject header) {
    std::unordered_set<std::string_view> names;
    for (const auto [name, value] : header) {
      if (!names.insert(name).second) return corrupt("'{}' stands twice in the header", printable(name));
      JsonObject entry;
      if (value.get(entry) != simdjson::SUCCESS)
        return corrupt("'{}' is no object in the header", printable(name));
      if (name == "__metadata__") {
        SHOAL_TRY(read_metadata(entry));
      } else {
        SHOAL_TRY(read_tensor(name, entry));
      }
    }
    return {};
  }

  Status read_metadata(JsonObject entries) {
    for (const auto [key, value] : entries) {
      std::string_view text;
      if (value.get(text) != simdjson::SUCCESS)
        return corrupt("metadata '{}' is not a string", printable(key));
      if (!file_.metadata_.emplace(key, text).second)
        return corrupt("metadata '{}' stands twice", printable(key));
    }
    return {};
  }

  Status read_tensor(std::string_view name, JsonObject entry) {
    std::string_view dtype;
    JsonArray shape;
    JsonArray offsets;
    if (name.empty()) return corrupt("a tensor has an empty name");
    if (entry["dtype"].get(dtype) || entry["shape"].get(shape) || entry["data_offsets"].get(offsets)) {
      return corrupt("tensor '{}' lacks a dtype, a shape or data_offsets of the right kind", printable(name));
    }
    const ElementType* type = find_type(dtype);
    if (type == nullptr)
      return corrupt("tensor '{}' has the unknown dtype '{}'", printable(name), printable(dtype));
    SafetensorsTensor tensor;
    tensor.name = name;
    tensor.dtype = dtype;
    tensor.type = type->type;
    std::int64_t bits = type->bits;
    SHOAL_TRY(read_shape(name, shape, tensor.shape, bits));
    if (bits % 8 != 0) return corrupt("tensor '{}' does not end on a whole byte", printable(name));
    SHOAL_TRY(place(name, offsets, bits / 8, tensor.bytes));
    file_.tensors_.push_back(std::move(tensor));
    return {};
  }

  // Multiplies `bits` of an element by the shape.
  Status read_shape(std::string_view name, JsonArray dims, std::vector<std::int64_t>& out,
                    std::int64_t& bits) {
    if (dims.size() > kMaxDimensions)
      return corrupt("tensor '{}' has {} dimensions", printable(name), dims.size());
    for (const JsonElement dim : dims) {
      std::int64_t size = 0;
      if (dim.get(size) != simdjson::SUCCESS || size < 0)
        return corrupt("tensor '{}' has a dimension that is no count", printable(name));
      if (__builtin_mul_overflow(bits, size, &bits))
        return corrupt("tensor '{}' has more bits than 63 bits can count", printable(name));
      out.push_back(size);
    }
    return {};
  }

  Status place(std::string_view name, JsonArray offsets, std::int64_t size, std::span<const std::byte>& out) {
    std::array<std::uint64_t, 2> range{};
    std::size_t count = 0;
    for (const JsonElement offset : offsets) {
      if (count == range.size() || offset.get(range[count]) != simdjson::SUCCESS) {
        count = 0;
        break;
      }
      ++count;
    }
    if (count != range.size()) return corrupt("tensor '{}' has no two data_offsets", printable(name));
    const auto [begin, end] = range;
    const std::uint64_t data = file_.bytes_.size() - file_.header_size_;
    if (begin > end || end > data) {
      return corrupt("tensor '{}' lies at {} to {} of the data, but the file has {} bytes there",
                     printable(name), begin, end, data);
    }
    if (end - begin != static_cast<std::uint64_t>(size)) {
      return corrupt("tensor '{}' has {} bytes, where its shape and dtype need {}", printable(name),
                     end - begin, size);
    }
    out = file_.bytes_.subspan(file_.header_size_ + static_cast<std::size_t>(begin),
                               static_cast<std::size_t>(size));
    return {};
  }

  Status check_cover() {
    auto& tensors = file_.tensors_;
    std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
      if (a.bytes.data() != b.bytes.data()) return a.bytes.data() < b.bytes.data();
      return a.bytes.size() < b.bytes.size();  // those without elements first
    });
    const std::byte* at = file_.bytes_.data() + file_.header_size_;
    std::string_view before = "the header";
    for (const SafetensorsTensor& tensor : tensors) {
      if (tensor.bytes.data() < at)
        return corrupt("tensors '{}' and '{}' overlap", printable(before), printable(tensor.name));
      if (tensor.bytes.data() > at) {
        return corrupt("{} bytes before tensor '{}' belong to none", tensor.bytes.data() - at,
                       printable(tensor.name));
      }
      at += tensor.bytes.size();
      before = tensor.name;
    }
    const auto rest = file_.bytes_.data() + file_.bytes_.size() - at;
    if (rest != 0) return corrupt("{} bytes at the end belong to no tensor", rest);
    return {};
  }

  SafetensorsFile& file_;
};

Expected<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  SHOAL_ASSIGN(mapping, MappedFile::open(path));
  SafetensorsFile file;
  file.mapping_ = std::move(mapping);
  file.bytes_ = file.mapping_->bytes();
  file.name_ = path.string();
  SHOAL_TRY(Parser(file).run());
  return file;
}

Expected<SafetensorsFile> SafetensorsFile::parse(std::span<const std::byte> bytes, std::string name) {
  SafetensorsFile file;
  file.bytes_ = bytes;
  file.name_ = std::move(name);
  SHOAL_TRY(Parser(file).run());
  return file;
}

void SafetensorsFile::drop(std::span<const std::byte> bytes) const {
  if (mapping_) mapping_->drop(static_cast<std::size_t>(bytes.data() - bytes_.data()), bytes.size());
}

}  // namespace shoal::formats
