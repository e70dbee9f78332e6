#include "ending.hpp"

#include <nlohmann/json.hpp>

#include "gputrain/core/json.hpp"

namespace gputrain::monitor {

std::optional<Ending> ending_of(const std::filesystem::path& run_folder) {
  const auto summary = parse_json_file(run_folder / "summary.json");
  try {
    return Ending{summary.at("status").get<std::string>(), summary.at("exit_code").get<int>()};
  } catch (const nlohmann::json::exception&) {  // absent, or the exit code is null: the attempt has not ended
    return std::nullopt;
  }
}

}  // namespace gputrain::monitor
