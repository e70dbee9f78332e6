// `gputrain launch`: the job's ranks on this host or many, started, watched and restarted.
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "commands.hpp"
#include "gputrain/checkpoint/store.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/launch/agent.hpp"
#include "gputrain/launch/launcher.hpp"
#include "job.hpp"
#include "run_folder.hpp"
#include "versions.hpp"

namespace gputrain::app {
namespace {

/// The step of the last whole line of the curve.
std::optional<int64_t> last_step_in(const std::filesystem::path& metrics) {
  constexpr std::streamoff kEnough = 65536;
  std::ifstream file(metrics, std::ios::binary);
  file.seekg(0, std::ios::end);
  const std::streamoff size = file.tellg();
  if (!file || size <= 0) return std::nullopt;
  file.seekg(std::max<std::streamoff>(0, size - kEnough));
  std::optional<int64_t> step;
  for (std::string line; std::getline(file, line);) {
    const auto object = nlohmann::json::parse(line, nullptr, false);
    if (object.is_object() && object.contains("step") && object["step"].is_number_integer())
      step = object["step"].get<int64_t>();
  }
  return step;
}

std::optional<checkpoint::Listed> newest_checkpoint(const RunFolder& folder) {
  std::optional<checkpoint::Listed> newest;
  for (auto& listed : checkpoint::CheckpointStore(folder.checkpoints()).list()) {
    if (listed.problem.empty() && (!newest || listed.step > newest->step)) newest = std::move(listed);
  }
  return newest;
}

launch::RunState state_of(const RunFolder& folder) {
  launch::RunState state{.step = last_step_in(folder.metrics()), .checkpoint_step = {}, .checkpoint = {}};
  try {
    if (const auto newest = newest_checkpoint(folder)) {
      state.checkpoint_step = newest->step;
      state.checkpoint = newest->folder.string();
    }
  } catch (const std::exception&) {  // a report tells what it can
  }
  return state;
}

/// What a rank runs in a given attempt. A checkpoint chosen by path is where the first one starts; the others go on
/// from what has been saved since.
class RankCommand {
 public:
  RankCommand(std::vector<std::string> arguments, std::string resume, RunFolder folder)
      : arguments_(std::move(arguments)), resume_(std::move(resume)), folder_(std::move(folder)) {}

  std::vector<std::string> operator()() const {
    auto words = arguments_;
    if (resume_ == "never" || (is_path() && has_saved()))
      words.insert(words.end(), {"--set", "checkpoint.resume=auto"});
    return words;
  }

 private:
  bool is_path() const { return resume_ != "auto" && resume_ != "must" && resume_ != "never"; }
  bool has_saved() const {
    std::error_code unknown;
    const auto newest = newest_checkpoint(folder_);
    return newest && std::filesystem::last_write_time(newest->folder, unknown) >= began_ && !unknown;
  }

  std::vector<std::string> arguments_;
  std::string resume_;
  RunFolder folder_;
  std::filesystem::file_time_type began_ = std::filesystem::file_time_type::clock::now();
};

}  // namespace

int launch_command(const LaunchRequest& request) {
  if (request.run.dry_run) {
    throw Error(ExitCode::usage, {.what = "a dry run starts no ranks", .hint = "gputrain run JOB --dry-run --world-size N checks a job for N ranks"});
  }
  JobRequest reading = request.run.job;
  reading.set.insert(reading.set.end(), request.set.begin(), request.set.end());
  const Job job = load_job(reading);
  const JobSpec& spec = job.spec();
  const RunFolder folder{job.output_dir};
  const bool names_hosts = spec.launch.hosts || spec.launch.hostfile;
  const auto node = names_hosts ? std::nullopt : launch::read_node();
  launch::LaunchRequest plan{.plan = node ? launch::plan_nodes(spec.launch, *node)
                                          : launch::plan_hosts(spec.launch, launch::allocated_nodes()),
                             .node = node,
                             .command = RankCommand(request.arguments, spec.checkpoint.resume, folder),
                             .environment = spec.env,
                             .run_folder = folder.path,
                             .device = spec.device,
                             .version = version(),
                             .max_restarts = spec.launch.max_restarts,
                             .master_port = static_cast<uint16_t>(spec.launch.master_port),
                             .grace_seconds = spec.launch.grace.seconds,
                             .host_timeout_seconds = spec.launch.host_timeout.seconds,
                             .state = [folder] { return state_of(folder); }};
  // The logs of this start belong into the new folder, not into the one that rank 0 would move aside.
  if (spec.checkpoint.resume == "never" && (!node || node->node == 0)) take_run_folder(folder.path, true);
  return launch::launch(plan);
}

int agent_command() { return launch::serve_agent(version()); }

}  // namespace gputrain::app
