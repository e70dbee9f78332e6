// A second copy of each checkpoint under another path, on another disk say: made in the background, after the first.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "gputrain/checkpoint/store.hpp"

namespace gputrain::checkpoint {

/// Copies finished checkpoints file by file as their manifests name them, reads the copy back from its disk, puts it in
/// place, and keeps as many there as its own retention says. Nothing that goes wrong reaches the caller but as a
/// result.
class Mirror {
 public:
  /// The first copy creates the folder.
  Mirror(std::filesystem::path checkpoints, Retention retention, int64_t branch = 1);
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;
  ~Mirror();  // breaks off, and leaves behind a thread that a dead disk does not let go

  /// Returns at once. While one is being copied, of those that wait only the newest is copied.
  void begin(const std::filesystem::path& checkpoint);

  /// While it is held, copying leaves disks and processors to others.
  void hold(bool held);

  /// Whether everything begun has ended, within that time.
  bool wait(double seconds);

  struct Result {
    int64_t step = 0;
    uint64_t bytes = 0;
    double seconds = 0;
    std::optional<Error> failure;
  };
  /// How copies have ended since the last call, in order. One whose original was removed meanwhile is not among them.
  std::vector<Result> take_results();

 private:
  struct State;
  std::shared_ptr<State> state_;  // the thread's as well
  std::thread thread_;            // started by the first begin()
};

}  // namespace gputrain::checkpoint
