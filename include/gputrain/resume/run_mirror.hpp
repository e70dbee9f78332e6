// checkpoint.mirror of a run: its folder, its lock, its copies in the background, and the messages about them.
#pragma once

#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/checkpoint/mirror.hpp"
#include "gputrain/job/run_lock.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/ledger.hpp"
#include "gputrain/resume/resume_point.hpp"

namespace gputrain::app {

class RunMirror {
 public:
  struct Parts {
    std::filesystem::path folder;
    checkpoint::Retention retention;
    int64_t branch;
    bool writes;  // true on rank 0; the others may only read
    monitor::Ledger& ledger;
    monitor::Console& console;
  };
  /// Throws Error(usage) when the folder is in use by another run.
  explicit RunMirror(Parts parts);

  /// Copies in the background. Not while the folder is another than at the start, for example because a disk was
  /// unmounted: a copy there would be no second one, and the folder is not locked.
  void begin(const std::filesystem::path& checkpoint);
  /// Holds copies back while other writing comes first.
  void hold(bool held);
  /// Copies a checkpoint that other ranks wait for, at most this long.
  CopyResult copy_now(const std::filesystem::path& checkpoint, double seconds);
  /// Tells how copies have ended, a cause once: a mirror that is gone for the night is one warning.
  void note_results();
  /// Waits until everything is copied, at most as long as `seconds_left` says, which is called again and again.
  void finish(const std::function<double()>& seconds_left);

 private:
  void lock();
  void note(const checkpoint::Mirror::Result& result);

  Parts parts_;
  RunLock lock_;
  std::optional<checkpoint::Mirror> copies_;
  std::vector<checkpoint::Mirror::Result> results_;  // of copy_now(), not told yet
  std::string told_;                                 // the newest failure in a warning
  bool is_away_ = false;                             // the folder is not the one that is locked
};

}  // namespace gputrain::app
