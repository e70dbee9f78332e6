// Destinations of records: one sink per file in src/monitor/sinks. `log.sinks` names those of a run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "gputrain/config/catalog.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/record.hpp"

namespace gputrain::monitor {

/// Destination of records. Only rank 0 has sinks, and calls each from one thread at a time. A sink that throws in log()
/// or status() is reported once and gets no more calls.
class Sink {
 public:
  virtual ~Sink();

  /// Returns whether log() may take long, for instance because it uses a network. Such a sink gets its records from a
  /// thread of its own, and training never waits for it.
  virtual bool is_slow() const { return false; }

  /// Returns whether log() also wants records with texts.
  virtual bool shows_texts() const { return false; }

  /// Returns whether log() also wants records with pictures.
  virtual bool shows_pictures() const { return false; }

  virtual void log(const Record& record) = 0;

  /// Removes what earlier attempts logged about steps after `step` and evaluations after `evaluated_step`, because the
  /// run repeats them. Called once, before the first log(). An exception prevents the start.
  virtual void truncate(int64_t step, int64_t evaluated_step) = 0;

  /// Returns where the run is shown, for the start page; empty: nothing to say. Called once, after truncate().
  virtual std::string place() const { return {}; }

  /// Does what is due while no record comes. Called every few seconds, between truncate() and close(), and only if the
  /// sink is slow.
  virtual void idle() {}

  /// Writes buffered data. Called once, at the end of the attempt, even if it fails.
  virtual void close() = 0;

  /// Shows the run's activity between two records to a person. Called after every step.
  virtual void status(const LiveLine&) {}
};

struct SinkRequest {
  std::filesystem::path folder;  // folder of the run
  Console& console;
  std::string run_id = {}, name = {};  // "support-bot-3f9a1c", "support-bot"
  std::map<std::string, std::string> settings =
      {};  // the resolved job, "optimizer.lr" and its value as YAML, secrets masked
};

using SinkCatalog = config::Catalog<Sink, const SinkRequest&>;
SinkCatalog& sinks();

}  // namespace gputrain::monitor
