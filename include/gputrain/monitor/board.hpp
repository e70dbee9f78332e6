// State of a run in progress: newest values, curves, ranks and events. The training thread writes it, servers read it.
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
    std::vector<std::string> places;  // place of each rank: "node2:1"
    int64_t attempt = 1, planned_steps = 0;
  };

  void begin(Facts facts);
  /// Notes a step, with counts over the whole run. Call it after each one.
  void note_step(int64_t step, double epoch, int64_t samples, int64_t tokens);
  /// Adds a record to the curves, the texts or the events; its metrics replace older ones.
  void add(const Record& record);
  /// Reads the points and events of earlier attempts in metrics.jsonl, or their texts in samples.jsonl, without their
  /// values: the newest values are those of this attempt. An absent file has none.
  void read_history(const std::filesystem::path& lines);
  /// Sets the newest value of a measurement.
  void set(const std::string& name, double value);
  void set_rank(int rank, const Metrics& metrics);
  /// Sets the state of the run: "training", "paused", "done".
  void set_state(const std::string& state);
  /// Sets the descriptions of firing alerts.
  void set_alerts(std::vector<std::string> alerts);

  /// Returns the values in Prometheus' text format 0.0.4.
  std::string prometheus() const;
  /// Returns everything, but only the points and texts after number `after`. Their common numbers start at 1; "newest"
  /// is the last one.
  nlohmann::ordered_json json(int64_t after = 0) const;
  /// Least and most of the newest values of ranks; equal for a value of the whole run.
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
  struct Text {
    int64_t number = 0, step = 0;
    WrittenText written = {};
  };
  struct Event {
    double time = 0;
    int64_t step = 0;
    std::string text;
  };

  Metrics derived() const;
  void add_point(int64_t step, double time, const std::string& kind, const Metrics& metrics);
  void add_text(int64_t step, const WrittenText& text);

  mutable std::mutex mutex_;
  Facts facts_;
  std::string state_ = "starting";
  Metrics values_;
  std::vector<Metrics> ranks_;
  std::vector<Point> points_;    // older ones are thinned out
  std::deque<Text> texts_;       // texts that the model writes
  int64_t newest_ = 0;           // number of the newest point or text
  int64_t last_of_history_ = 0;  // number of the last point of earlier attempts
  std::optional<std::chrono::steady_clock::time_point> last_step_;
  std::deque<Event> events_;
  std::vector<std::string> alerts_;
};

/// Creates a sink that gives records to the board, which must outlive it.
std::unique_ptr<Sink> board_sink(Board& board);

}  // namespace gputrain::monitor
