#include "gputrain/monitor/summary.hpp"

#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/json.hpp"

namespace gputrain::monitor {
namespace {

void write(const std::filesystem::path& path, const nlohmann::ordered_json& object) {
  // Invalid UTF-8 is replaced, because the reason may contain a path in any encoding.
  const std::string text = object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  write_file_atomically(path, text + "\n", ExitCode::environment);
}

}  // namespace

void write_summary(const std::filesystem::path& path, const Summary& summary) {
  auto best = nlohmann::ordered_json::object();
  for (const auto& [name, entry] : summary.best) best[name] = {{"value", entry.value}, {"step", entry.step}};
  nlohmann::ordered_json object{
      {"schema", 1},
      {"run_id", summary.run_id},
      {"status", summary.status},
      {"exit_code", summary.exit_code},
      {"reason", summary.reason},
      {"step", summary.step},
      {"epoch", summary.epoch},
      {"samples", summary.samples},
      {"tokens", summary.tokens},
      {"world_size", summary.world_size},
      {"attempts", summary.attempts},
      {"metrics", summary.metrics},
      {"best", best},
      {"throughput",
       {{"samples_per_second", summary.samples_per_second}, {"tokens_per_second", summary.tokens_per_second}}},
      {"wall_seconds", summary.wall_seconds},
      {"total_seconds", summary.total_seconds},
      {"first_step_seconds", summary.first_step_seconds},
      {"peak_memory_bytes", summary.peak_memory_bytes},
  };
  if (summary.cost) object["cost"] = *summary.cost;
  if (summary.cost_limit) object["cost_limit"] = *summary.cost_limit;
  if (!summary.stopped_by.empty()) object["stopped_by"] = summary.stopped_by;
  if (summary.sent_bytes_per_step > 0) {
    object["communication"] = {{"bytes_per_step", summary.sent_bytes_per_step},
                               {"uncompressed_bytes_per_step", summary.uncompressed_bytes_per_step}};
  }
  write(path, object);
}

void write_beginning(const std::filesystem::path& path, const Beginning& beginning) {
  nlohmann::ordered_json object{
      {"schema", 1}, {"run_id", beginning.run_id}, {"status", beginning.status}, {"exit_code", nullptr}};
  if (beginning.exit_code) object["exit_code"] = *beginning.exit_code;
  object["reason"] = beginning.reason;
  if (auto before = newest_end(path); !before.empty()) object["before"] = std::move(before);
  write(path, object);
}

nlohmann::ordered_json newest_end(const std::filesystem::path& path) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(path, unknown)) return nlohmann::ordered_json::object();
  auto found = parse_json_file<nlohmann::ordered_json>(path);
  const bool is_beginning = found.is_object() && !found.contains("step");
  if (is_beginning) found = found.value("before", nlohmann::ordered_json());
  return found.is_object() ? found : nlohmann::ordered_json::object();
}

void restore_newest_end(const std::filesystem::path& path) {
  if (const auto before = newest_end(path); !before.empty()) return write(path, before);
  std::error_code ignored;  // if this fails, the file says that the end is unknown
  std::filesystem::remove(path, ignored);
}

}  // namespace gputrain::monitor
