#include "gputrain/monitor/summary.hpp"

#include <nlohmann/json.hpp>

#include "gputrain/core/atomic_file.hpp"

namespace gputrain::monitor {

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
      {"first_step_seconds", summary.first_step_seconds},
      {"peak_memory_bytes", summary.peak_memory_bytes},
  };
  if (summary.sent_bytes_per_step > 0) {
    object["communication"] = {{"bytes_per_step", summary.sent_bytes_per_step},
                               {"uncompressed_bytes_per_step", summary.uncompressed_bytes_per_step}};
  }
  // Its reason may name a path, in any encoding.
  const std::string text = object.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  write_file_atomically(path, text + "\n", ExitCode::environment);
}

}  // namespace gputrain::monitor
