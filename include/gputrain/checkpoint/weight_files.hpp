// The safetensors files that together hold the weights of a model.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/checkpoint/part.hpp"
#include "gputrain/checkpoint/safetensors.hpp"

namespace gputrain::checkpoint {

class WeightFiles {
 public:
  /// `path` is a safetensors file, or a folder with model.safetensors or with shards and their
  /// model.safetensors.index.json. The frozen weights of a checkpoint belong to it. Throws Error(data) that names a
  /// missing file, or the kind of a wrong one.
  explicit WeightFiles(const std::filesystem::path& path);

  /// Returns the file, or the index of the shards.
  const std::filesystem::path& path() const noexcept { return path_; }
  std::vector<std::string> names() const;  // sorted by byte value
  /// Reads a tensor as SafetensorsFile::tensor() does.
  at::Tensor tensor(const std::string& name) const {
    return part_ ? part_->tensor(name) : holders_.at(name)->tensor(name);
  }
  const std::filesystem::path& file_of(const std::string& name) const {
    return part_ ? path_ : holders_.at(name)->path();
  }
  /// Returns the metadata of model.safetensors; shards have none.
  const Metadata& metadata() const noexcept { return metadata_; }

 private:
  void add(const std::filesystem::path& file);
  void add_shards();

  std::filesystem::path path_;
  std::shared_ptr<const Part> part_;  // that of a checkpoint whose ranks shared out weights; null: other weights
  std::map<std::string, std::shared_ptr<const SafetensorsFile>> holders_;  // keys: names of tensors
  Metadata metadata_;
};

/// Returns the object in a JSON file. Throws Error(data) that says what the file is instead.
nlohmann::json read_json_object(const std::filesystem::path& path);

}  // namespace gputrain::checkpoint
