// The time of each phase of a training step, measured without making the host or the device wait.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

#include <c10/core/Device.h>
#include <c10/core/Event.h>

namespace gputrain::device {

/// The parts of a step. `communication` is the time in which a rank waits for others, not the time in which it computes
/// meanwhile; `graph` is a whole step that is replayed as one CUDA graph.
enum class Phase { load, copy, forward, backward, communication, optimizer, graph, count };

constexpr size_t kPhases = static_cast<size_t>(Phase::count);
using PhaseTimes = std::array<double, kPhases>;  // seconds
const char* name_of(Phase phase) noexcept;

/// Measures phases one after another: with events on a GPU, else with the host's clock. Used by one thread.
class PhaseClock {
 public:
  explicit PhaseClock(c10::Device device) : device_(device) {}

  /// Ends the present phase and begins another, after all work that this thread has queued on its current stream.
  void enter(Phase phase);
  /// Ends the present phase; what follows is in none.
  void leave();
  /// Adds time that the host has measured.
  void add(Phase phase, double seconds) { times_[static_cast<size_t>(phase)] += seconds; }

  /// Ignores enter() and leave() while it lives: events may not be recorded into a CUDA graph.
  class Pause {
   public:
    explicit Pause(PhaseClock& clock) : clock_(clock) { ++clock_.paused_; }
    ~Pause() { --clock_.paused_; }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    PhaseClock& clock_;
  };

  /// Returns the time in each phase since the last call. Phases that a GPU has not yet finished are left for later.
  PhaseTimes take();

 private:
  struct Mark {
    std::optional<Phase> phase;  // phase that begins here
    std::chrono::steady_clock::time_point moment;
    std::optional<c10::Event> event;  // on a GPU
  };
  void mark(std::optional<Phase> phase);

  c10::Device device_;
  PhaseTimes times_{};
  std::optional<Mark> last_;      // on a CPU
  std::deque<Mark> marks_;        // on a GPU: those whose phase has not been counted
  std::vector<c10::Event> idle_;  // events to use again
  int paused_ = 0;
};

}  // namespace gputrain::device
