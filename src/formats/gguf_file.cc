#include "formats/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

namespace shoal::formats {

static_assert(std::endian::native == std::endian::little,
              "the reader copies little-endian numbers as they are");

namespace {

constexpr std::uint64_t kDefaultAlignment = 32;
// The format asks for a multiple of 8; 1 MiB is far above any page size in use.
constexpr std::uint64_t kMinAlignment = 8;
constexpr std::uint64_t kMaxAlignment = std::uint64_t{1} << 20;
constexpr std::uint64_t kMaxKeyBytes = 65535;  // the format's own limit
constexpr std::uint64_t kMaxTensorNameBytes = 1024;
// length, one character, type, one byte of value
constexpr std::uint64_t kMinEntryBytes = 8 + 1 + 4 + 1;
// length, one character, dimension count, one dimension, type, offset
constexpr std::uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

bool multiply(std::int64_t a, std::int64_t b, std::int64_t& out) {
  return !__builtin_mul_overflow(a, b, &out);
}

}  // namespace

std::string printable(std::string_view text) {
  constexpr std::size_t kLongest = 80;
  std::string out;
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    out.push_back(byte < 0x20 || byte >= 0x7f ? '?' : c);
  }
  if (text.size() > kLongest) out += "...";
  return out;
}

// One pass over the header. `at_` never passes the end of the file, and every read says what it was reading.
class GgufFile::Parser {
 public:
  explicit Parser(GgufFile& file) : file_(file), bytes_(file.bytes_) {}

  Status run() {
    SHOAL_TRY(read_preamble());
    SHOAL_TRY(read_metadata());
    SHOAL_TRY(read_alignment());
    SHOAL_TRY(read_tensor_table());
    return place_tensors();
  }

 private:
  std::uint64_t left() const { return bytes_.size() - at_; }

  template <typename... Args>
  Status corrupt(fmt::format_string<Args...> text, Args&&... args) const {
    return {ErrorCode::kCorrupt,
            fmt::format("{}: {}", file_.name_, fmt::format(text, std::forward<Args>(args)...))};
  }
  template <typename... Args>
  Status unsupported(fmt::format_string<Args...> text, Args&&... args) const {
    return {ErrorCode::kUnsupported,
            fmt::format("{}: {}", file_.name_, fmt::format(text, std::forward<Args>(args)...))};
  }

  template <typename T>
  Status read(T& out, std::string_view what) {
    if (left() < sizeof(T)) return corrupt("the file ends inside {}, at byte {}", what, bytes_.size());
    std::memcpy(&out, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return {};
  }

  Status read_string(std::string_view& out, std::uint64_t longest, std::string_view what) {
    std::uint64_t length = 0;
    SHOAL_TRY(read(length, what));
    if (length > longest)
      return corrupt("{} is said to be {} bytes long, the limit is {}", what, length, longest);
    if (length > left()) {
      return corrupt("{} is said to be {} bytes long, but the file has {} left", what, length, left());
    }
    out = {reinterpret_cast<const char*>(bytes_.data() + at_), static_cast<std::size_t>(length)};
    at_ += static_cast<std::size_t>(length);
    return {};
  }

  Status read_preamble() {
    if (bytes_.size() < 4 || std::memcmp(bytes_.data(), "GGUF", 4) != 0) {
      return corrupt("not a GGUF file: it does not start with the letters GGUF");
    }
    at_ = 4;
    SHOAL_TRY(read(file_.version_, "the version"));
    if ((file_.version_ & 0xffffU) == 0 && file_.version_ != 0) {
      return unsupported("a big-endian GGUF file, which cannot be read here: convert it to little-endian");
    }
    if (file_.version_ != 2 && file_.version_ != 3) {
      return unsupported("GGUF version {}; versions 2 and 3 are known", file_.version_);
    }
    SHOAL_TRY(read(tensor_count_, "the tensor count"));
    SHOAL_TRY(read(entry_count_, "the metadata count"));
    if (entry_count_ > left() / kMinEntryBytes) {
      return corrupt("claims {} metadata entries, which {} bytes cannot hold", entry_count_, left());
    }
    if (tensor_count_ > left() / kMinTensorBytes) {
      return corrupt("claims {} tensors, which {} bytes cannot describe", tensor_count_, left());
    }
    return {};
  }

  Status read_metadata() {
    file_.entries_.reserve(static_cast<std::size_t>(entry_count_));
    for (std::uint64_t i = 0; i < entry_count_; ++i) {
      std::string_view key;
      SHOAL_TRY(read_string(key, kMaxKeyBytes, fmt::format("the name of metadata entry {}", i)));
      if (key.empty()) return corrupt("metadata entry {} has an empty name", i);
      SHOAL_TRY(read_value(key));
      if (!file_.entry_index_.emplace(key, file_.entries_.size() - 1).second) {
        return corrupt("metadata key '{}' stands twice", printable(key));
      }
    }
    return {};
  }

  Status read_type(GgufType& out, std::string_view key) {
    std::uint32_t type = 0;
    SHOAL_TRY(read(type, fmt::format("the type of key '{}'", printable(key))));
    if (type > static_cast<std::uint32_t>(GgufType::kFloat64)) {
      return corrupt("key '{}' has the unknown type {}", printable(key), type);
    }
    out = static_cast<GgufType>(type);
    return {};
  }

  Status read_value(std::string_view key) {
    GgufType type{};
    SHOAL_TRY(read_type(type, key));
    if (type == GgufType::kArray) return read_array(key);
    if (type == GgufType::kString) {
      std::string_view text;
      SHOAL_TRY(read_string(text, bytes_.size(), fmt::format("the value of key '{}'", printable(key))));
      file_.entries_.push_back({key, GgufValue(type, std::as_bytes(std::span(text.data(), text.size())))});
      return {};
    }
    const std::size_t width = gguf_scalar_bytes(type);
    if (left() < width) return corrupt("the file ends inside the value of key '{}'", printable(key));
    if (type == GgufType::kBool && std::to_integer<int>(bytes_[at_]) > 1) {
      return corrupt("key '{}' is a bool with the value {}", printable(key),
                     std::to_integer<int>(bytes_[at_]));
    }
    file_.entries_.push_back({key, GgufValue(type, bytes_.subspan(at_, width))});
    at_ += width;
    return {};
  }

  Status read_array(std::string_view key) {
    GgufType element{};
    std::uint64_t count = 0;
    SHOAL_TRY(read_type(element, key));
    SHOAL_TRY(read(count, fmt::format("the length of array '{}'", printable(key))));
    if (element == GgufType::kArray) return unsupported("key '{}' is an array of arrays", printable(key));
    // A string takes at least its 8 bytes of length.
    const std::uint64_t least = element == GgufType::kString ? 8 : gguf_scalar_bytes(element);
    if (count > left() / least) {
      return corrupt("array '{}' claims {} elements, which the {} bytes left cannot hold", printable(key),
                     count, left());
    }
    const std::size_t begin = at_;
    if (element == GgufType::kString) {
      SHOAL_TRY(skip_strings(count, key));
    } else {
      at_ += static_cast<std::size_t>(count * least);
    }
    file_.entries_.push_back({key, GgufValue::array(element, count, bytes_.subspan(begin, at_ - begin))});
    return {};
  }

  // Separate from read_string: a vocabulary has 100,000 of them and their names are not formatted one by one.
  Status skip_strings(std::uint64_t count, std::string_view key) {
    for (std::uint64_t i = 0; i < count; ++i) {
      std::uint64_t length = 0;
      if (left() < 8) return corrupt("the file ends inside element {} of array '{}'", i, printable(key));
      std::memcpy(&length, bytes_.data() + at_, 8);
      at_ += 8;
      if (length > left()) {
        return corrupt("element {} of array '{}' is said to be {} bytes long, but the file has {} left", i,
                       printable(key), length, left());
      }
      at_ += static_cast<std::size_t>(length);
    }
    return {};
  }

  Status read_alignment() {
    SHOAL_ASSIGN(alignment, file_.get_uint("general.alignment", kDefaultAlignment));
    if (!std::has_single_bit(alignment) || alignment < kMinAlignment || alignment > kMaxAlignment) {
      return corrupt("general.alignment is {}; a power of two from {} to {} is needed", alignment,
                     kMinAlignment, kMaxAlignment);
    }
    file_.alignment_ = alignment;
    return {};
  }

  Status read_tensor_table() {
    file_.tensors_.reserve(static_cast<std::size_t>(tensor_count_));
    offsets_.reserve(static_cast<std::size_t>(tensor_count_));
    for (std::uint64_t i = 0; i < tensor_count_; ++i) {
      GgufTensor tensor;
      SHOAL_TRY(read_string(tensor.name, kMaxTensorNameBytes, fmt::format("the name of tensor {}", i)));
      if (tensor.name.empty()) return corrupt("tensor {} has an empty name", i);
      SHOAL_TRY(read_shape(tensor));
      SHOAL_TRY(read_dtype(tensor));
      std::uint64_t offset = 0;
      SHOAL_TRY(read(offset, fmt::format("the offset of tensor '{}'", printable(tensor.name))));
      if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second) {
        return corrupt("tensor '{}' stands twice in the table", printable(tensor.name));
      }
      offsets_.push_back(offset);
      file_.tensors_.push_back(tensor);
    }
    file_.header_size_ = at_;
    return {};
  }

  Status read_shape(GgufTensor& tensor) {
    std::uint32_t n_dims = 0;
    SHOAL_TRY(read(n_dims, fmt::format("the shape of tensor '{}'", printable(tensor.name))));
    if (n_dims < 1 || n_dims > tensor.dims.size()) {
      return corrupt("tensor '{}' has {} dimensions; 1 to 4 are possible", printable(tensor.name), n_dims);
    }
    tensor.n_dims = static_cast<int>(n_dims);
    std::int64_t elements = 1;
    for (std::uint32_t d = 0; d < n_dims; ++d) {
      std::uint64_t size = 0;
      SHOAL_TRY(read(size, fmt::format("the shape of tensor '{}'", printable(tensor.name))));
      if (size == 0) return corrupt("tensor '{}' has no elements in dimension {}", printable(tensor.name), d);
      if (size > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
          !multiply(elements, static_cast<std::int64_t>(size), elements)) {
        return corrupt("tensor '{}' has more elements than 63 bits can count", printable(tensor.name));
      }
      tensor.dims[d] = static_cast<std::int64_t>(size);
    }
    return {};
  }

  Status read_dtype(GgufTensor& tensor) {
    std::uint32_t type_id = 0;
    SHOAL_TRY(read(type_id, fmt::format("the type of tensor '{}'", printable(tensor.name))));
    const auto type = dtype_from_gguf(type_id);
    if (!type) return unsupported("tensor '{}' has the unknown type {}", printable(tensor.name), type_id);
    tensor.type = *type;
    if (tensor.row_length() % block_elements(*type) != 0) {
      return corrupt("tensor '{}' has rows of {} elements, not a multiple of the {} that a {} block holds",
                     printable(tensor.name), tensor.row_length(), block_elements(*type), dtype_name(*type));
    }
    return {};
  }

  // Turns offsets into spans, once the length of the header and the alignment are known.
  Status place_tensors() {
    if (file_.tensors_.empty()) return {};
    const std::uint64_t alignment = file_.alignment_;
    const std::uint64_t data_begin = (at_ + alignment - 1) / alignment * alignment;
    const std::uint64_t data_size = data_begin <= bytes_.size() ? bytes_.size() - data_begin : 0;
    for (std::size_t i = 0; i < offsets_.size(); ++i) {
      GgufTensor& tensor = file_.tensors_[i];
      std::int64_t size = 0;
      if (!multiply(tensor.elements() / block_elements(tensor.type), block_bytes(tensor.type), size)) {
        return corrupt("tensor '{}' has more bytes than 63 bits can count", printable(tensor.name));
      }
      const std::uint64_t offset = offsets_[i];
      if (offset % alignment != 0) {
        return corrupt("tensor '{}' lies at offset {}, which is not a multiple of the alignment {}",
                       printable(tensor.name), offset, alignment);
      }
      if (offset > data_size || static_cast<std::uint64_t>(size) > data_size - offset) {
        return corrupt("tensor '{}' needs {} bytes at offset {} of the data, but the file has only {} there",
                       printable(tensor.name), size, offset, data_size);
      }
      tensor.bytes =
          bytes_.subspan(static_cast<std::size_t>(data_begin + offset), static_cast<std::size_t>(size));
    }
    return refuse_overlaps();
  }

  Status refuse_overlaps() const {
    std::vector<std::size_t> order(offsets_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(), [&](auto a, auto b) { return offsets_[a] < offsets_[b]; });
    for (std::size_t i = 1; i < order.size(); ++i) {
      const GgufTensor& before = file_.tensors_[order[i - 1]];
      const GgufTensor& after = file_.tensors_[order[i]];
      if (offsets_[order[i - 1]] + before.bytes.size() > offsets_[order[i]]) {
        return corrupt("tensors '{}' and '{}' overlap", printable(before.name), printable(after.name));
      }
    }
    return {};
  }

  GgufFile& file_;
  std::span<const std::byte> bytes_;
  std::size_t at_ = 0;
  std::uint64_t tensor_count_ = 0;
  std::uint64_t entry_count_ = 0;
  std::vector<std::uint64_t> offsets_;
};

Expected<GgufFile> GgufFile::open(const std::filesystem::path& path) {
  SHOAL_ASSIGN(mapping, MappedFile::open(path));
  GgufFile file;
  file.mapping_ = std::move(mapping);
  file.bytes_ = file.mapping_->bytes();
  file.name_ = path.string();
  SHOAL_TRY(Parser(file).run());
  return file;
}

Expected<GgufFile> GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  GgufFile file;
  file.bytes_ = bytes;
  file.name_ = std::move(name);
  SHOAL_TRY(Parser(file).run());
  return file;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = entry_index_.find(key);
  return found == entry_index_.end() ? nullptr : &entries_[found->second].value;
}

const GgufTensor* GgufFile::tensor(std::string_view name) const {
  const auto found = tensor_index_.find(name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

void GgufFile::drop(const GgufTensor& tensor) const {
  if (!mapping_) return;
  mapping_->drop(static_cast<std::size_t>(tensor.bytes.data() - bytes_.data()), tensor.bytes.size());
}

namespace {

Status absent(const GgufFile& file, std::string_view key) {
  return {ErrorCode::kNotFound, fmt::format("{}: metadata key '{}' is missing", file.name(), key)};
}

// Fetches one value by one of GgufValue's accessors; `wanted` is for the message.
template <typename T>
Expected<T> get(const GgufFile& file, std::string_view key, std::optional<T> (GgufValue::*as)() const,
                std::string_view wanted) {
  const GgufValue* value = file.find(key);
  if (value == nullptr) return absent(file, key);
  if (auto result = (value->*as)()) return std::move(*result);
  const std::string found = value->type() == GgufType::kArray
                                ? fmt::format("array of {}", gguf_type_name(value->element_type()))
                                : std::string(gguf_type_name(value->type()));
  return Status(ErrorCode::kCorrupt, fmt::format("{}: metadata key '{}' is of type {}, where {} is expected",
                                                 file.name(), key, found, wanted));
}

template <typename T>
Expected<T> get_or(const GgufFile& file, std::string_view key, T fallback,
                   std::optional<T> (GgufValue::*as)() const, std::string_view wanted) {
  if (!file.has(key)) return fallback;
  return get(file, key, as, wanted);
}

constexpr std::string_view kUintWanted = "an integer of at least 0";
constexpr std::string_view kFloatWanted = "a number";
constexpr std::string_view kBoolWanted = "a bool";
constexpr std::string_view kStringWanted = "a string";

}  // namespace

Expected<std::uint64_t> GgufFile::get_uint(std::string_view key) const {
  return get(*this, key, &GgufValue::as_uint, kUintWanted);
}
Expected<std::uint64_t> GgufFile::get_uint(std::string_view key, std::uint64_t fallback) const {
  return get_or(*this, key, fallback, &GgufValue::as_uint, kUintWanted);
}
Expected<std::int64_t> GgufFile::get_int(std::string_view key) const {
  return get(*this, key, &GgufValue::as_int, "an integer");
}
Expected<double> GgufFile::get_float(std::string_view key) const {
  return get(*this, key, &GgufValue::as_float, kFloatWanted);
}
Expected<double> GgufFile::get_float(std::string_view key, double fallback) const {
  return get_or(*this, key, fallback, &GgufValue::as_float, kFloatWanted);
}
Expected<bool> GgufFile::get_bool(std::string_view key) const {
  return get(*this, key, &GgufValue::as_bool, kBoolWanted);
}
Expected<bool> GgufFile::get_bool(std::string_view key, bool fallback) const {
  return get_or(*this, key, fallback, &GgufValue::as_bool, kBoolWanted);
}
Expected<std::string_view> GgufFile::get_string(std::string_view key) const {
  return get(*this, key, &GgufValue::as_string, kStringWanted);
}
Expected<std::string_view> GgufFile::get_string(std::string_view key, std::string_view fallback) const {
  return get_or(*this, key, fallback, &GgufValue::as_string, kStringWanted);
}
Expected<std::vector<std::string_view>> GgufFile::get_strings(std::string_view key) const {
  return get(*this, key, &GgufValue::as_strings, "an array of strings");
}
Expected<std::vector<std::int32_t>> GgufFile::get_int32s(std::string_view key) const {
  return get(*this, key, &GgufValue::as_int32s, "an array of 32-bit integers");
}
Expected<std::vector<float>> GgufFile::get_floats(std::string_view key) const {
  return get(*this, key, &GgufValue::as_floats, "an array of numbers");
}

}  // namespace shoal::formats
