// The manifest of a checkpoint: its files with their sizes and hashes, and the slice of each tensor that a file holds.
// Does not use LibTorch, so that it can be fuzzed alone. The manifest has a seal itself: "seal" is the XXH3-128 of the
// file with zeros in place of the seal's digits.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/checkpoint/file_seal.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::checkpoint {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kStateName = "state.json";
inline constexpr const char* kTensorSuffix = ".safetensors";

/// A checkpoint was read and differs from what was written.
class Damage : public Error {
 public:
  explicit Damage(std::string what, const std::filesystem::path& where)
      : Error(ExitCode::checkpoint, {.what = std::move(what), .where = where.string()}) {}
};

/// A checkpoint, or a part of it, cannot be read now, but it may be valid.
class Unreadable : public Error {
 public:
  explicit Unreadable(std::string what, const std::filesystem::path& where)
      : Error(ExitCode::checkpoint, {.what = std::move(what), .where = where.string()}) {}
};

/// The metric that selects the best checkpoint.
struct Score {
  std::string metric;
  double value = 0;
};

/// A cut of a tensor along one dimension: the ranges of indices that are left, one behind the other.
struct Cut {
  struct Range {
    int64_t begin = 0;
    int64_t end = 0;

    friend bool operator==(const Range&, const Range&) = default;
  };

  int64_t dim = 0;
  std::vector<Range> ranges;  // at least one; none is empty, in ascending order, without overlap

  friend bool operator==(const Cut&, const Cut&) = default;
};

/// Consecutive elements of a larger tensor, or of a cut of it, from element `begin`.
struct Slice {
  std::vector<int64_t> shape;  // sizes of the whole tensor
  int64_t begin = 0;           // first element, in the cut if there is one
  /// The tensor's dimensions, from the one along which elements are farthest apart to the one of neighbours: {0, 2, 3,
  /// 1} for channels-last. Empty: row-major, as it must be for a cut.
  std::vector<int64_t> order = {};
  std::optional<Cut> cut = {};

  friend bool operator==(const Slice&, const Slice&) = default;
};

/// Returns the sizes of the tensor whose consecutive elements a slice holds: of the whole tensor, or of its cut. The
/// slice must have no flaw.
std::vector<int64_t> sizes_of_cut(const Slice& slice);

/// Returns why a slice is impossible, for instance a cut outside the tensor; empty: it is possible.
std::string flaw_of(const Slice& slice);

/// The job and the ranks that wrote a checkpoint.
struct Origin {
  std::string spec_hash;                        // hash of the settings that a resumed run may not change
  int64_t world_size = 1;                       // ranks that wrote it
  std::map<std::string, std::string> versions;  // versions of gputrain and the libraries that computed it

  friend bool operator==(const Origin&, const Origin&) = default;
};

/// Weights that training did not change. They lie once beside a run's checkpoints, in a file named by its hash.
struct Frozen {
  struct Tensor {
    std::string dtype;  // safetensors' name: "BF16"
    std::vector<int64_t> shape;
    std::string xxh3_128;  // hash of its bytes in row-major order

    friend bool operator==(const Tensor&, const Tensor&) = default;
  };

  FileSeal seal;       // seal of the file
  std::string source;  // origin of the values: "pretrained weights/gpt2", "seed 42"
  std::map<std::string, Tensor> tensors;

  std::string file_name() const;  // "frozen-<hash>.safetensors"
};

struct Manifest {
  struct File {
    FileSeal seal;
    std::string part;                     // "model", "optimizer"; empty for a file without tensors
    int64_t rank = 0;                     // the rank that wrote it
    std::map<std::string, Slice> slices;  // keys: tensor names; a tensor not listed here is whole
  };

  int64_t step = 0;
  Origin origin;
  std::map<std::string, File> files;  // keys: names in the checkpoint's folder
  std::optional<Score> score;
  std::optional<bool> for_good;  // whether the run never removes it; null: older, or no such rule
  std::optional<Frozen> frozen;  // a part of "model" that is not in `files`
};

std::string to_json(const Manifest& manifest);

std::string to_json(const Manifest::File& file);
/// Throws Damage for anything that to_json() did not write for one file.
Manifest::File parse_file(std::string_view text, const std::filesystem::path& path);

/// Throws Damage for anything that to_json() did not write, and Unreadable for a manifest of another version. `path` is
/// for the message. File names cannot point outside the checkpoint's folder.
Manifest parse_manifest(std::string_view text, const std::filesystem::path& path);

/// Returns "step-00000100"; "step-00000100-2" when the step is saved again.
std::string folder_name(int64_t step, int64_t number = 1);

/// Returns "model.safetensors", or "model-00002-of-00004.safetensors" for rank 1 of 4.
std::string file_name(const std::string& part, int64_t rank, int64_t ranks);

}  // namespace gputrain::checkpoint
