// Sink whose records are written by a thread of its own.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "gputrain/monitor/sink.hpp"

namespace gputrain::monitor {

/// Sink that passes records to another one in their order. At most `room` of them wait, with at most `picture_room`
/// bytes of pictures; further ones are dropped and counted. log() throws what the other sink threw at an earlier
/// record.
class BackgroundSink final : public Sink {
 public:
  struct Options {
    size_t room = 10'000, picture_room = size_t{64} << 20;
    std::chrono::milliseconds patience{5'000};  // limit for writing the waiting records at the end
  };

  BackgroundSink(std::string name, std::unique_ptr<Sink> sink);
  BackgroundSink(std::string name, std::unique_ptr<Sink> sink, const Options& options);
  ~BackgroundSink() override;

  bool shows_texts() const override { return shows_texts_; }
  bool shows_pictures() const override { return shows_pictures_; }
  void log(const Record& record) override;
  /// Runs on the calling thread: a sink that refuses the start must do so before the first step.
  void truncate(int64_t step, int64_t evaluated_step) override;
  std::string place() const override { return place_; }
  /// Waits until everything is written and the sink is closed, for as long as the options say. A slower sink is
  /// abandoned, and the records that it has not taken are reported as lost.
  void close() override;

 private:
  struct Shared;
  std::string name_;
  Options options_;
  bool shows_texts_, shows_pictures_;
  std::string place_;
  std::shared_ptr<Shared> shared_;  // shared with a thread that may hang and live longer
};

}  // namespace gputrain::monitor
