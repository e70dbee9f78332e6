// What a run shows of itself while it goes on: newest values, curves, ranks and events. The training thread writes it,
// servers read it.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/monitor/sink.hpp"

namespace gputrain::monitor {

class Board {
 public:
  struct Facts {
    std::string run_id, name, folder;
    std::vector<std::string> places;  // of each rank: "node2:1"
    int64_t attempt = 1, planned_steps = 0;
  };

  void begin(Facts facts);
  /// After each step, with counts over the whole run.
  void note_step(int64_t step, double epoch, int64_t samples, int64_t tokens);
  /// A record joins the curves or the events, and its metrics replace older ones.
  void add(const Record& record);
  /// Points that earlier attempts left in metrics.jsonl, for the curves alone: the newest values are those of this
  /// attempt. A file that is not there leaves none.
  void read_history(const std::filesystem::path& metrics);
  /// The newest value of a measurement.
  void set(const std::string& name, double value);
  void set_rank(int rank, const Metrics& metrics);
  /// What the run is doing: "training", "paused", "done".
  void set_state(const std::string& state);
  /// The alerts that are firing, in words.
  void set_alerts(std::vector<std::string> alerts);

  /// In Prometheus' text format 0.0.4.
  std::string prometheus() const;
  /// Everything; of the curves, the points after the given one. Points have numbers from 1.
  nlohmann::ordered_json json(int64_t after_point = 0) const;
  /// Newest values by name, over the whole run; of measurements of ranks, the largest and the smallest.
  struct Range {
    double least = 0, most = 0;
  };
  std::map<std::string, Range> values() const;

 private:
  struct Point {
    int64_t number = 0, step = 0;
    double time = 0;  // in Unix time
    std::string kind;
    Metrics metrics;
  };
  struct Event {
    double time = 0;
    int64_t step = 0;
    std::string text;
  };

  Metrics derived() const;
  void add_point(int64_t step, double time, const std::string& kind, const Metrics& metrics);

  mutable std::mutex mutex_;
  Facts facts_;
  std::string state_ = "starting";
  Metrics values_;
  std::vector<Metrics> ranks_;
  std::vector<Point> points_;    // fewer of the older ones
  int64_t last_of_history_ = 0;  // number of the last point of earlier attempts
  std::optional<std::chrono::steady_clock::time_point> last_step_;
  std::deque<Event> events_;
  std::vector<std::string> alerts_;
};

/// Gives records to the board, which must outlive it.
std::unique_ptr<Sink> board_sink(Board& board);

}  // namespace gputrain::monitor
