// metrics.jsonl: one JSON object per log, evaluation or event line, appended when it happens.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

namespace gputrain::monitor {

using Metrics = std::map<std::string, double>;  // "train/loss", "val/top1" (percent), ...

class MetricsFile {
 public:
  MetricsFile() = default;  // writes nothing: for ranks other than 0
  /// Continues the file at `path`. Moves lines after `resume_step`, evaluations after `evaluated_step` and incomplete
  /// lines to `<path>.left`.
  MetricsFile(std::filesystem::path path, int64_t resume_step, int64_t evaluated_step);

  struct Line {
    int64_t step = 0;
    double epoch = 0;
    std::string kind;     // train | eval | event
    std::string message;  // events only
  };
  /// Appends and flushes one line. Warns once about a disk error; training continues.
  void append(const Line& line, const Metrics& metrics = {});

 private:
  std::filesystem::path path_;
  bool failed_ = false;
};

}  // namespace gputrain::monitor
