// File of an offline run of Weights & Biases: records as protocol buffers, framed in blocks like LevelDB's logs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "gputrain/core/protobuf.hpp"

namespace gputrain::monitor::wandb {

using Values = std::map<std::string, std::string>;  // a value is JSON

/// Row of the curves.
struct Row {
  int64_t step = 0;
  Values values = {};
};

struct Run {
  std::string id, project, entity, name;
  int64_t start_seconds = 0;
  Values config = {};
};

// Records.
protobuf::Message header(const std::string& run_id);
protobuf::Message of(const Run& run);
protobuf::Message of(const Row& row);
protobuf::Message summary(const Values& values);
protobuf::Message exit(int exit_code, int64_t runtime_seconds, const std::string& run_id);

/// Content from earlier attempts.
struct Past {
  std::vector<Row> rows = {};
  int64_t start_seconds = 0;
};

/// Returns whether we have written a file; false too if it cannot be read.
bool is_ours(const std::filesystem::path& path);

/// Reads the rows of a file up to its first incomplete record. Throws Error(environment) on a disk error.
Past read(const std::filesystem::path& path);

/// Frame of one file's records, which numbers them.
class Framing {
 public:
  /// Returns the bytes of the next record, and at the start those of the file's header.
  std::string next(const protobuf::Message& record);

  int64_t size() const { return size_; }  // bytes made so far

 private:
  int64_t size_ = 0, records_ = 0;
};

}  // namespace gputrain::monitor::wandb
