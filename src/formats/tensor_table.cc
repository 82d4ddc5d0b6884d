#include "formats/tensor_table.h"

#include <fmt/format.h>

#include <utility>

namespace shoal::formats {

TensorTable TensorTable::of(const GgufFile& file) {
  TensorTable table(file.name());
  table.add_file(file.name());
  // The reader has refused names that stand twice.
  for (const GgufTensor& tensor : file.tensors()) static_cast<void>(table.add(tensor));
  return table;
}

std::int32_t TensorTable::add_file(std::string path) {
  files_.push_back(std::move(path));
  return static_cast<std::int32_t>(files_.size() - 1);
}

Status TensorTable::add(ModelTensor tensor) {
  const auto [at, added] = index_.emplace(tensor.name, tensors_.size());
  if (!added) {
    return {ErrorCode::kCorrupt, fmt::format("{}: tensor '{}' is also in {}", file_of(tensor),
                                             spelled(tensor.name), file_of(tensors_[at->second]))};
  }
  tensors_.push_back(tensor);
  return {};
}

Status TensorTable::add(ModelTensor tensor, std::string name) {
  tensor.name = names_.emplace_back(std::move(name));
  return add(tensor);
}

const ModelTensor* TensorTable::find(std::string_view name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace shoal::formats
