#include "gputrain/monitor/metrics_file.hpp"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>


#include "append_line.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"

namespace gputrain::monitor {
namespace {

/// The lines of an earlier attempt that stay; lines that are not JSON objects with a step are torn: dropped.
std::string kept_lines(const std::filesystem::path& path, int64_t last_step, int64_t last_evaluation) {
  std::ifstream file(path);
  std::string kept, line;
  while (std::getline(file, line)) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (!object.is_object() || !object.contains("step") || !object["step"].is_number_integer()) continue;
    const int64_t last = object.value("kind", "") == "eval" ? std::min(last_step, last_evaluation) : last_step;
    if (object["step"].get<int64_t>() <= last) kept += line + "\n";
  }
  return kept;
}

}  // namespace

MetricsFile::MetricsFile(std::filesystem::path path, int64_t resume_step, int64_t evaluated_step)
    : path_(std::move(path)) {
  write_file_atomically(path_, kept_lines(path_, resume_step, evaluated_step), ExitCode::environment);
}

void MetricsFile::append(const Line& line, const Metrics& metrics) {
  if (path_.empty()) return;
  nlohmann::ordered_json object{
      {"time", seconds_since_epoch()}, {"step", line.step}, {"epoch", line.epoch}, {"kind", line.kind}};
  if (!line.message.empty()) object["message"] = line.message;
  for (const auto& [name, value] : metrics) {
    object[name] = std::isfinite(value) ? nlohmann::ordered_json(value) : nlohmann::ordered_json(nullptr);
  }
  const std::string text = object.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  if (!append_line(path_, text, /*sync=*/false) && !std::exchange(failed_, true)) {
    log::warning(path_.string() + ": cannot append; training goes on without its curve");
  }
}

}  // namespace gputrain::monitor
