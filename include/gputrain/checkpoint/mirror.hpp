// Copies each finished checkpoint to a second path, for example on another disk, in the background.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "gputrain/checkpoint/store.hpp"

namespace gputrain::checkpoint {

/// Copies the files that the manifest names, reads the copy back from its disk and renames it into place. Prunes the
/// mirror by its own retention. Failures are only reported as results.
class Mirror {
 public:
  /// The first copy creates the folder.
  Mirror(std::filesystem::path checkpoints, Retention retention, int64_t branch = 1);
  Mirror(const Mirror&) = delete;
  Mirror& operator=(const Mirror&) = delete;
  ~Mirror();  // cancels the copy; detaches the thread if a dead disk blocks it

  /// Returns at once. While one copy is running, only the newest waiting checkpoint is copied next.
  void begin(const std::filesystem::path& checkpoint);

  /// Pauses copying while `held`, so that others get the disks and the CPU.
  void hold(bool held);

  /// Waits at most this long until all copies have ended; returns whether they have.
  bool wait(double seconds);

  struct Result {
    int64_t step = 0;
    uint64_t bytes = 0;
    double seconds = 0;
    std::optional<Error> failure;
  };
  /// Results since the last call, in order. A copy whose original was removed meanwhile is left out.
  std::vector<Result> take_results();

 private:
  struct State;
  std::shared_ptr<State> state_;  // shared with the thread
  std::thread thread_;            // started by the first begin()
};

}  // namespace gputrain::checkpoint
