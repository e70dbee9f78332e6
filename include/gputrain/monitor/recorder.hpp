// Recorder: gives each record to every sink of the run.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/monitor/sink.hpp"

namespace gputrain::monitor {

class Recorder {
 public:
  Recorder() = default;  // has no sinks: for ranks other than 0
  /// Builds the sinks, which get each record in this order, and the request with secrets masked.
  Recorder(const std::vector<config::Choice>& sinks, const SinkRequest& request);
  /// Builds sinks without options of their own.
  Recorder(const std::vector<std::string>& names, const SinkRequest& request);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;
  ~Recorder();  // closes the sinks if the attempt has begun

  /// Adds one more sink after the others.
  void add(std::string name, std::unique_ptr<Sink> sink);

  /// Gives a record to the sinks. Lines for the console also go to this rank's log, whatever sinks there are. Any
  /// thread may call.
  void log(const Record& record);
  /// Returns whether a sink shows pictures, so that they are to be made.
  bool shows_pictures() const;
  void status(const LiveLine& line);
  /// Calls Sink::truncate of each sink. Throws what a sink throws.
  void truncate(int64_t step, int64_t evaluated_step);
  /// Returns the sinks that have something to say on the start page, with what they say.
  std::vector<std::pair<std::string, std::string>> places() const;

 private:
  struct Named {
    std::string name;
    std::unique_ptr<Sink> sink;
  };
  void each(const std::function<void(Sink&)>& call);

  mutable std::mutex mutex_;  // guards what follows
  std::vector<Named> sinks_;
  bool has_begun_ = false;  // has logged, or truncated what earlier attempts logged
};

}  // namespace gputrain::monitor
