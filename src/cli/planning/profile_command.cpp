// Command `gputrain profile RUN`: shows the most expensive parts of the steps of `run --profile`, and advice.
#include <cstdio>
#include <filesystem>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/inspect/profile_advice.hpp"
#include "gputrain/inspect/text_table.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::app {
namespace {

nlohmann::json read_profile(const std::filesystem::path& path) {
  if (!std::filesystem::exists(path)) {
    throw Error(ExitCode::usage, {.what = "there is no profile of this run",
                                  .where = path.string(),
                                  .hint = "gputrain run job.yaml --profile 10 records ten steps"});
  }
  auto summary = parse_json_file(path);
  if (summary.is_object() && summary.value("schema", 0) == 1) return summary;
  throw Error(ExitCode::usage, {.what = "is not a profile's summary", .where = path.string()});
}

void print_profile(const nlohmann::json& summary, const std::filesystem::path& folder) {
  const double steps = summary.at("steps").get<double>(), seconds = summary.at("seconds").get<double>() / steps;
  double flops = 0;
  for (const auto& rank : summary.at("ranks")) flops += rank.at("flops").get<double>();
  std::printf("steps   %s to %s, %s each on rank 0 of %s\n", grouped(summary.at("first_step").get<int64_t>()).c_str(),
              grouped(summary.at("last_step").get<int64_t>()).c_str(), monitor::duration(seconds).c_str(),
              grouped(std::ssize(summary.at("ranks"))).c_str());
  if (flops > 0) {
    std::printf("flops   %s in a step of all ranks; the model's count is %s\n", monitor::compact(flops / steps).c_str(),
                monitor::compact(summary.at("model_flops").get<double>() / steps).c_str());
  }
  TextTable table("rrrl");
  table.add({"time", "share", "calls", "in a step, by its own time"});
  for (const ProfileItem& item : top_of_profile(summary)) {
    table.add({monitor::significant(1e3 * item.seconds) + " ms", fmt::format("{:.1f} %", 100 * item.share),
               monitor::significant(item.calls), shortened(item.name, 80)});
  }
  std::printf("\n%s\n", table.text().c_str());
  const auto advice = profile_advice(summary);
  for (const std::string& text : advice) std::printf("try     %s\n", text.c_str());
  if (advice.empty()) std::printf("try     nothing stands out: most of the time goes into computing\n");
  std::printf("traces  %s/rank<k>.trace.json, to be opened together at https://ui.perfetto.dev\n",
              folder.string().c_str());
}

}  // namespace

int profile_command(const std::string& run, bool json) {
  const std::filesystem::path path = RunFolder{run}.profile() / "summary.json";
  const nlohmann::json summary = read_profile(path);
  try {
    if (!json) {
      print_profile(summary, path.parent_path());
      return 0;
    }
    auto top = nlohmann::json::array();
    for (const ProfileItem& item : top_of_profile(summary))
      top.push_back({{"name", item.name}, {"seconds", item.seconds}, {"share", item.share}, {"calls", item.calls}});
    const nlohmann::json report{{"schema", 1}, {"top", std::move(top)}, {"advice", profile_advice(summary)}};
    std::printf("%s\n", report.dump(2).c_str());
    return 0;
  } catch (const nlohmann::json::exception& failure) {
    throw Error(ExitCode::usage, {.what = "is not a profile's summary: " + reason_in(failure), .where = path.string()});
  }
}

}  // namespace gputrain::app
