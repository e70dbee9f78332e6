// A part of a checkpoint ("model", "optimizer"): tensors in one file, or sharded over the files of several ranks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/checkpoint/manifest.hpp"
#include "gputrain/checkpoint/safetensors.hpp"

namespace gputrain::checkpoint {

class Part {
 public:
  struct File {
    std::filesystem::path path;
    FileSeal seal;
    std::map<std::string, Slice> slices;  // keys: tensor names; a tensor not listed here is whole
    bool is_shared = false;  // many checkpoints share it, and are good again once it is back: Unreadable, not Damage
  };

  /// Reads only the headers. Throws Damage if a file is malformed, or if the slices of a tensor do not cover it exactly
  /// once.
  explicit Part(std::vector<File> files);

  std::vector<std::string> names() const;  // sorted by byte value
  bool contains(const std::string& name) const { return tensors_.count(name) > 0; }

  /// Returns a whole tensor: a view of the file that holds all of it, otherwise a copy assembled from slices. Does not
  /// check the hash. Throws Error(checkpoint) if absent.
  at::Tensor tensor(const std::string& name) const;

  /// Returns the type of a tensor. Throws Error(checkpoint) if there is none of this name.
  at::ScalarType type(const std::string& name) const { return entry_of(name).type; }

  /// A destination of read(): a tensor, or a slice of one as a tensor of any shape that has the slice's elements, in
  /// their order, row by row.
  struct Target {
    std::string name;
    at::Tensor tensor;
    std::optional<Slice> slice;
  };

  /// Reads each file that is needed once, fills the targets and checks the file's hash. Throws Error(checkpoint) before
  /// any change if names, dtypes or shapes do not match; Damage if a file differs from what was written; Unreadable if
  /// it cannot be read. After the last two, the targets' content is undefined. `tensors`: how many the part must have.
  void read(const std::vector<Target>& targets, std::optional<size_t> tensors = std::nullopt) const;

 private:
  /// The first `count` elements of a slice, from byte `place` of a file.
  struct Piece {
    size_t file;
    Slice slice;  // slice of the whole tensor, also if the file has all of it
    int64_t count;
    uint64_t place;
  };
  struct Entry {
    at::ScalarType type;
    std::vector<int64_t> sizes;
    std::vector<int64_t> order;  // order of the elements, as in Slice
    std::vector<Piece> pieces;
  };

  void add_file(size_t index);
  void check_cover(const std::string& name, const Entry& entry) const;
  const Entry& entry_of(const std::string& name) const;
  void check(const Target& target) const;
  void check_all(const std::vector<Target>& targets, std::optional<size_t> tensors) const;
  const SafetensorsFile& mapped(size_t file) const;

  std::vector<File> files_;
  std::map<std::string, Entry> tensors_;
  mutable std::map<size_t, SafetensorsFile> mapped_;  // files that tensor() has mapped
};

/// Returns the first `count` elements of a slice of `tensor`, which is whole: flat, a copy or a view.
at::Tensor elements_of(const at::Tensor& tensor, const Slice& slice, int64_t count);

/// Returns one target per whole tensor.
std::vector<Part::Target> whole(const NamedTensors& tensors);

/// Fills live tensors, which must be exactly the tensors of the part. Otherwise like Part::read().
void restore(const Part& part, const NamedTensors& live);

}  // namespace gputrain::checkpoint
