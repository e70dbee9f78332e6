#include "gputrain/monitor/samples_file.hpp"

#include <fstream>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "../append_line.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/monitor/archive_lines.hpp"

namespace gputrain::monitor {
namespace {

/// Returns the step of a line; -1: it is incomplete.
int64_t step_of(const std::string& line) {
  const auto object = parse_json(line);
  return object.is_object() ? json_value(object, "step", int64_t{-1}) : -1;
}

class SamplesSink final : public Sink {
 public:
  explicit SamplesSink(std::filesystem::path path) : path_(std::move(path)) {}
  bool shows_texts() const override { return true; }

  /// Appends and flushes a line for each text. Warns once about a disk error, and tries later texts again.
  void log(const Record& record) override {
    std::string lines;
    for (const WrittenText& one : record.texts) {
      const nlohmann::ordered_json object{{"time", seconds_since_epoch()},
                                          {"step", record.step},
                                          {"epoch", record.epoch},
                                          {"kind", record.kind},
                                          {"name", one.name},
                                          {"prompt", one.prompt},
                                          {"text", one.text},
                                          {"is_answer", one.is_answer}};
      lines += object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
    }
    if (!lines.empty() && !append_line(path_, lines, /*sync=*/false) && !std::exchange(failed_, true))
      log::warning(path_.string() + ": cannot append; training continues, but texts are lost");
  }

  void truncate(int64_t step, int64_t) override {
    archive_lines(path_, [&](const std::string& line) { return step_of(line) >= 0 && step_of(line) <= step; });
  }

  void close() override {}

 private:
  std::filesystem::path path_;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<Sink> samples_sink(const std::filesystem::path& path) { return std::make_unique<SamplesSink>(path); }

bool has_samples_of(const std::filesystem::path& path, int64_t step) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);)
    if (step_of(line) == step) return true;
  return false;
}

}  // namespace gputrain::monitor
