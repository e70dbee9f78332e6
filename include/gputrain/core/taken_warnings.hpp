// Keeps warnings back while something is made, so that they can be told wherever it is used.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace gputrain::log {

/// While it lives, warnings of this thread, and of those that work for it, come here and are not written. Not one
/// within another. What nobody takes is written at its end.
class TakenWarnings {
 public:
  TakenWarnings();
  ~TakenWarnings();
  TakenWarnings(const TakenWarnings&) = delete;
  TakenWarnings& operator=(const TakenWarnings&) = delete;

  std::vector<std::string> take();
  void add(std::string_view warning);

  /// The one that takes warnings of this thread; null: they are written.
  static TakenWarnings* current();

 private:
  std::mutex mutex_;
  std::vector<std::string> warnings_;
};

/// While it lives, warnings of this thread go where those of the thread go that it works for.
class WorkerWarnings {
 public:
  explicit WorkerWarnings(TakenWarnings* of_other);
  ~WorkerWarnings();
  WorkerWarnings(const WorkerWarnings&) = delete;
  WorkerWarnings& operator=(const WorkerWarnings&) = delete;
};

}  // namespace gputrain::log
