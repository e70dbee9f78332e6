// Work that may take long, such as an evaluation or a save: a terminal shows it while it goes on.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace gputrain {

/// Work that goes on as long as this object exists. Costs next to nothing where nobody looks.
class Activity {
 public:
  /// `label`: first word of its line ("eval"). `text`: what is done. `parts`: number of its parts; 0: unknown.
  explicit Activity(std::string label, std::string text, int64_t parts = 0);
  Activity(const Activity&) = delete;
  Activity& operator=(const Activity&) = delete;
  ~Activity();

  /// Counts parts that are done. May be called from any thread.
  void add(int64_t parts = 1) noexcept { done_ += parts; }

  struct Seen {
    std::string label, text;
    double seconds = 0;           // time since it began
    std::optional<double> share;  // part that is done, from 0 to 1; empty: unknown
  };
  /// Returns the newest that goes on for at least so many seconds.
  static std::optional<Seen> newest(double least_seconds);

 private:
  const std::string label_, text_;
  const int64_t parts_;
  std::atomic<int64_t> done_ = 0;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace gputrain
