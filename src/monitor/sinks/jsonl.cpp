// Records as JSON lines (metrics.jsonl), appended as they happen.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "../append_line.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/monitor/archive_lines.hpp"
#include "gputrain/monitor/sink.hpp"

namespace gputrain::monitor {
namespace {

/// Returns whether a line of an earlier attempt is still valid; an incomplete one, without a step, is not.
bool is_history(const std::string& line, int64_t last_step, int64_t last_evaluation) {
  const auto object = parse_json(line);
  if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) return false;
  const auto keys = object.items();
  const bool is_of_val =
      std::any_of(keys.begin(), keys.end(), [](const auto& item) { return item.key().starts_with("val/"); });
  return object["step"].get<int64_t>() <= (is_of_val ? std::min(last_step, last_evaluation) : last_step);
}

class JsonlSink final : public Sink {
 public:
  JsonlSink(const config::NoOptions&, const SinkRequest& request) : path_(request.folder / "metrics.jsonl") {}

  /// Appends and flushes one line. Warns once about a disk error, and tries later lines again: there may be room again.
  void log(const Record& record) override {
    nlohmann::ordered_json object{
        {"time", seconds_since_epoch()}, {"step", record.step}, {"epoch", record.epoch}, {"kind", record.kind}};
    if (record.kind == "event") object["message"] = record.label + (record.label.empty() ? "" : " ") + record.text;
    for (const auto& [name, value] : record.metrics) {
      object[name] = std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
    }
    const std::string text = object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    if (!append_line(path_, text, /*sync=*/false) && !std::exchange(failed_, true)) {
      log::warning(path_.string() + ": cannot append; training continues, but metrics are lost");
    }
  }

  /// Moves removed and incomplete lines to `<path>.left`.
  void truncate(int64_t step, int64_t evaluated_step) override {
    archive_lines(path_, [&](const std::string& line) { return is_history(line, step, evaluated_step); });
    if (!std::filesystem::exists(path_)) write_file_atomically(path_, {}, ExitCode::environment);
  }

  void close() override {}

 private:
  std::filesystem::path path_;
  bool failed_ = false;
};

const config::Registered<JsonlSink, config::NoOptions> registered_jsonl{sinks(), "jsonl",
                                                                        "metrics.jsonl in the run folder"};

}  // namespace
}  // namespace gputrain::monitor
