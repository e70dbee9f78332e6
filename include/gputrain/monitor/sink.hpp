// Where records go: one sink per file in src/monitor/sinks. `log.sinks` names those that a run has.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>

#include "gputrain/config/catalog.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/monitor/record.hpp"

namespace gputrain::monitor {

/// Only rank 0 has sinks, and calls each from one thread at a time. A sink that throws in log() or status() is reported
/// once and gets nothing more.
class Sink {
 public:
  virtual ~Sink();

  /// Whether log() may take long: it writes to a network, for instance. Such a sink is given its records by a thread of
  /// its own, and training never waits for it.
  virtual bool is_slow() const { return false; }

  /// Whether log() is to be given records with histograms and texts, too.
  virtual bool shows_media() const { return false; }

  virtual void log(const Record& record) = 0;

  /// Removes what earlier attempts logged about steps past `step` and evaluations past `evaluated_step`, because the
  /// run takes them again. Called once, before the first log(). What it throws refuses the start.
  virtual void truncate(int64_t step, int64_t evaluated_step) = 0;

  /// Writes what is still buffered. Called once, at the end of the attempt, also of one that fails.
  virtual void close() = 0;

  /// What the run does between two records, for sinks that show it to a person. Called after every step.
  virtual void status(std::string_view) {}
};

struct SinkRequest {
  std::filesystem::path folder;  // of the run
  Console& console;
  std::string run_id = {}, name = {};  // "support-bot-3f9a1c", "support-bot"
  std::map<std::string, std::string> settings =
      {};  // the resolved job, "optimizer.lr" and its value as YAML, secrets masked
};

using SinkCatalog = config::Catalog<Sink, const SinkRequest&>;
SinkCatalog& sinks();

}  // namespace gputrain::monitor
