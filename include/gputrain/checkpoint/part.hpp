// A part of a checkpoint, "model" or "optimizer": tensors in one file, or cut over the files of many ranks.
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
    std::map<std::string, Slice> slices;  // by tensor; one that is not here is whole
    bool is_shared =
        false;  // by many checkpoints, which are as good as new when it is put back: Unreadable, not Damage
  };

  /// Reads the headers only. Throws Damage when a file is not well-formed, or when the slices of a tensor do not cover
  /// it exactly once.
  explicit Part(std::vector<File> files);

  std::vector<std::string> names() const;  // in order of their bytes
  bool contains(const std::string& name) const { return tensors_.count(name) > 0; }

  /// A whole tensor: a view of the file that has all of it, put together otherwise. Its bytes are not compared with the
  /// file's hash. Error(checkpoint) when absent.
  at::Tensor tensor(const std::string& name) const;

  /// Of a tensor. Error(checkpoint) when absent.
  at::ScalarType type(const std::string& name) const { return entry_of(name).type; }

  /// Memory to be filled: a tensor, or a slice of one as the elements of a flat tensor.
  struct Target {
    std::string name;
    at::Tensor tensor;
    std::optional<Slice> slice;
  };

  /// Fills the targets in one pass over the files they need, while each file is compared with its seal. Names, dtypes
  /// and shapes must agree: throws Error(checkpoint) otherwise, before anything is changed. Throws Damage for a file
  /// that is not what was written, Unreadable for one that cannot be read; the targets then hold anything.
  /// `tensors`: how many the part must have.
  void read(const std::vector<Target>& targets, std::optional<size_t> tensors = std::nullopt) const;

 private:
  /// Elements [begin, end) of a tensor, from byte `place` of a file.
  struct Piece {
    size_t file;
    int64_t begin, end;
    uint64_t place;
  };
  struct Entry {
    at::ScalarType type;
    std::vector<int64_t> sizes;
    std::vector<Piece> pieces;  // in order
  };

  void add_file(size_t index);
  const Entry& entry_of(const std::string& name) const;
  void check(const Target& target) const;
  void check_all(const std::vector<Target>& targets, std::optional<size_t> tensors) const;
  const SafetensorsFile& mapped(size_t file) const;

  std::vector<File> files_;
  std::map<std::string, Entry> tensors_;
  mutable std::map<size_t, SafetensorsFile> mapped_;  // those that tensor() was asked for
};

/// Tensors as targets of their own.
std::vector<Part::Target> whole(const NamedTensors& tensors);

/// Fills live tensors, all that the part has and no other; otherwise as Part::read.
void restore(const Part& part, const NamedTensors& live);

}  // namespace gputrain::checkpoint
