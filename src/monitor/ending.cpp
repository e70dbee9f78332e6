#include "ending.hpp"

#include <fstream>

#include <nlohmann/json.hpp>

namespace gputrain::monitor {

std::optional<Ending> ending_of(const std::filesystem::path& run_folder) {
  std::ifstream file(run_folder / "summary.json");
  const auto summary = nlohmann::json::parse(file, nullptr, false);
  try {
    return Ending{summary.at("status").get<std::string>(), summary.at("exit_code").get<int>()};
  } catch (const nlohmann::json::exception&) {  // absent, or the exit code is null: the attempt has not ended
    return std::nullopt;
  }
}

}  // namespace gputrain::monitor
