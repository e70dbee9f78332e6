// The manifest of a checkpoint: which files it has, their sizes and hashes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "gputrain/checkpoint/file_seal.hpp"
#include "gputrain/checkpoint/store.hpp"

namespace gputrain::checkpoint {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr const char* kStateName = "state.json";
inline constexpr const char* kTensorSuffix = ".safetensors";

struct Manifest {
  int64_t step = 0;
  std::map<std::string, FileSeal> files;  // by name in the checkpoint's folder
  std::optional<Score> score;
};

/// A checkpoint that is not what was written; in contrast to one that cannot be read at this moment.
class Damage : public Error {
 public:
  using Error::Error;
};

std::string to_json(const Manifest& manifest);

/// "step-00000100"
std::string folder_name(int64_t step);

/// Reads a checkpoint's manifest and tests that every file has its size; with `hashes`, also its content. Throws
/// Damage that names the file and what is wrong, or Error(checkpoint) when something cannot be read.
Manifest verify(const std::filesystem::path& folder, bool hashes);

/// A small text file, refused when it is larger than any that we write.
std::string read_text(const std::filesystem::path& path);

}  // namespace gputrain::checkpoint
