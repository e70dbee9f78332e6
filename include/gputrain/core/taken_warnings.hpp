// Keeps warnings back while something is made, so that they can be told wherever it is used.
#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace gputrain::log {

/// While this object exists, it collects the warnings of this thread and of the threads that work for it, and nothing
/// is written. Its end writes what nobody has taken. One object at a time.
class TakenWarnings {
 public:
  TakenWarnings();
  ~TakenWarnings();
  TakenWarnings(const TakenWarnings&) = delete;
  TakenWarnings& operator=(const TakenWarnings&) = delete;

  std::vector<std::string> take();
  void add(std::string_view warning);

  /// Returns the object that collects warnings of this thread; null: they are written.
  static TakenWarnings* current();

 private:
  std::mutex mutex_;
  std::vector<std::string> warnings_;
};

/// While this object exists, warnings of this thread go the way of warnings of the thread that it works for.
class WorkerWarnings {
 public:
  explicit WorkerWarnings(TakenWarnings* of_other);
  ~WorkerWarnings();
  WorkerWarnings(const WorkerWarnings&) = delete;
  WorkerWarnings& operator=(const WorkerWarnings&) = delete;
};

}  // namespace gputrain::log
