// Timer of the parts of Dataset::read() on one thread, for a benchmark. Costs a comparison otherwise.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

namespace gputrain::data {

/// Times of the samples that this thread reads while it lives. One at a time on a thread.
class ReadStages {
 public:
  ReadStages() { current() = this; }
  ReadStages(const ReadStages&) = delete;
  ReadStages& operator=(const ReadStages&) = delete;
  ~ReadStages() { current() = nullptr; }

  /// Starts the clock; call it before each sample.
  void begin() { since_ = std::chrono::steady_clock::now(); }

  /// Ends a stage, for datasets: this thread's time since begin() or the last call belongs to it.
  static void end(const char* stage) {
    if (ReadStages* listener = current(); listener != nullptr) listener->note(stage);
  }

  /// Returns each stage with its seconds, in their order.
  const std::vector<std::pair<std::string, double>>& stages() const noexcept { return stages_; }

 private:
  static ReadStages*& current() noexcept {
    thread_local ReadStages* listener = nullptr;
    return listener;
  }

  void note(const char* stage) {
    const auto now = std::chrono::steady_clock::now();
    const double seconds = std::chrono::duration<double>(now - std::exchange(since_, now)).count();
    for (auto& [name, sum] : stages_) {
      if (name == stage) return static_cast<void>(sum += seconds);
    }
    stages_.emplace_back(stage, seconds);
  }

  std::chrono::steady_clock::time_point since_ = std::chrono::steady_clock::now();
  std::vector<std::pair<std::string, double>> stages_;
};

}  // namespace gputrain::data
