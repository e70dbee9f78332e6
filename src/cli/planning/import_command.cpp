// Command `gputrain import`: writes a job for gputrain from one of another tool.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "../commands.hpp"
#include "gputrain/config/load.hpp"
#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/job/foreign.hpp"
#include "gputrain/job/job.hpp"
#include "gputrain/monitor/console.hpp"

namespace gputrain::app {
namespace {

/// Throws SpecError at the place in the job that is wrong. What is to be filled in may wait.
void check(const MovedJob& job, const std::string& output) {
  config::load(job_schema(), {.file = output, .text = job.yaml, .set = {"model.pretrained=null"}});
}

void print_json(const ImportRequest& request, const MovedJob& job) {
  auto told = nlohmann::ordered_json::array();
  for (const auto& [theirs, why] : job.told) told.push_back({{"key", theirs}, {"why", why}});
  const nlohmann::ordered_json found{{"tool", job.tool},      {"job", request.output},  {"moved", job.moved},
                                     {"told", told},          {"guessed", job.guessed}, {"unchanging", job.unchanging},
                                     {"unknown", job.unknown}};
  std::fputs((found.dump(2) + "\n").c_str(), stdout);
}

}  // namespace

int import_job_command(const ImportRequest& request) {
  if (std::filesystem::exists(request.output))
    throw Error(ExitCode::usage, {.what = "exists already", .where = request.output, .hint = "another --output"});
  const MovedJob job = move_job(request.file, request.tool);
  check(job, request.output);
  write_file_atomically(request.output, job.yaml, ExitCode::environment);
  if (request.json) {
    print_json(request, job);
    return 0;
  }
  monitor::Console console(monitor::Console::detect(true));
  console.show("from", job.tool + "  " + counted(std::ssize(job.moved), "key") + " moved");
  int64_t needless = 0;
  for (const auto& [theirs, why] : job.told) {
    if (why.starts_with("not needed"))
      ++needless;
    else
      console.show("not moved", theirs + "  " + why);
  }
  if (needless > 0)
    console.show("not needed", counted(needless, "key") + "; the end of " + request.output + " says why");
  if (!job.guessed.empty()) console.show("guessed", fmt::format("{}", fmt::join(job.guessed, ", ")));
  if (!job.unchanging.empty()) console.show("no change", fmt::format("{}", fmt::join(job.unchanging, ", ")));
  if (!job.unknown.empty()) console.show("unknown", fmt::format("{}", fmt::join(job.unknown, ", ")));
  console.show("job", request.output + "  `gputrain run " + request.output + " --dry-run` checks it");
  return 0;
}

}  // namespace gputrain::app
