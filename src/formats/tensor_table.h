// All tensors of a model by name, whatever files they lie in.
//
// Thread-safety: const after filling; any thread may read.
// Ownership: owns file names and the names it was told to keep; bytes belong to the files. Moving the table
//   keeps the views into it.
// Invariants: names are unique.

#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/expected.h"
#include "formats/gguf_file.h"
#include "formats/model_tensor.h"

namespace shoal::formats {

class TensorTable {
 public:
  // model: what messages about the whole call it.
  explicit TensorTable(std::string model) : model_(std::move(model)) {}
  static TensorTable of(const GgufFile& file);

  // Gives the number to put into ModelTensor::file.
  std::int32_t add_file(std::string path);
  // The tensor's name must outlive the table. Fails with kCorrupt where the name is there already.
  Status add(ModelTensor tensor);
  // The same for a name that is made up here.
  Status add(ModelTensor tensor, std::string name);
  // How the files of this model spell a name of ours, for messages; by default as we do.
  void spell_with(std::function<std::string(std::string_view)> spelling) { spelling_ = std::move(spelling); }

  const std::string& model() const { return model_; }
  const std::vector<std::string>& files() const { return files_; }
  std::span<const ModelTensor> tensors() const { return tensors_; }
  // Null where absent.
  const ModelTensor* find(std::string_view name) const;
  const std::string& file_of(const ModelTensor& tensor) const {
    return files_[static_cast<std::size_t>(tensor.file)];
  }
  std::string spelled(std::string_view name) const { return spelling_ ? spelling_(name) : printable(name); }

 private:
  std::string model_;
  std::vector<std::string> files_;
  std::vector<ModelTensor> tensors_;
  std::deque<std::string> names_;  // a deque: views survive growth and moves
  std::unordered_map<std::string_view, std::size_t> index_;
  std::function<std::string(std::string_view)> spelling_;
};

}  // namespace shoal::formats
