// Command `gputrain launch`: starts, watches and restarts the job's ranks on one or many hosts.
#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "commands.hpp"
#include "gputrain/checkpoint/listing.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/job/job_start.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/job/version.hpp"
#include "gputrain/launch/admission.hpp"
#include "gputrain/launch/agent.hpp"
#include "gputrain/launch/launcher.hpp"

namespace gputrain::app {
namespace {

/// Runs this program with stdout to /dev/null. Returns its exit code, or 128 + signal.
int run_self(std::vector<std::string> words) {
  words.insert(words.begin(), "gputrain");
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  const int failure = ::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) {
    throw Error(ExitCode::environment,
                {.what = std::string("cannot start a process to check the job: ") + std::strerror(failure),
                 .hint = "see `ulimit -u` and `ulimit -n`"});
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/// Check of the whole job in a process that does not load LibTorch. Some keys need LibTorch for their check, so a child
/// process does it: `gputrain validate`, which prints the errors.
class JobCheck {
 public:
  explicit JobCheck(JobRequest job) : job_(std::move(job)) {}

  /// Returns the part of the job that this process can check; empty if it is wrong. All errors have been printed then.
  std::optional<JobStart> read() {
    try {
      return config::load(config::schema_of<JobStart>(), reading_of(job_)).as<JobStart>();
    } catch (const config::SpecError&) {
      if (passes()) throw;
      return std::nullopt;
    }
  }

  /// Checks the whole job and returns whether it is valid. The errors are printed to stderr.
  bool passes() {
    const config::Request reading = reading_of(job_);
    std::vector<std::string> words{"validate", job_.file};
    for (const std::string& setting : reading.set) words.insert(words.end(), {"--set", setting});
    exit_code_ = run_self(std::move(words));
    return *exit_code_ == 0;
  }
  bool is_done() const noexcept { return exit_code_.has_value(); }
  /// Returns the exit code. Only if is_done(); 0: the job is valid.
  int exit_code() const { return exit_code_.value(); }

 private:
  JobRequest job_;
  std::optional<int> exit_code_;
};

/// Returns the step in the last complete line of metrics.jsonl.
std::optional<int64_t> last_step_in(const std::filesystem::path& metrics) {
  constexpr std::streamoff kEnough = 65536;
  std::ifstream file(metrics, std::ios::binary);
  file.seekg(0, std::ios::end);
  const std::streamoff size = file.tellg();
  if (!file || size <= 0) return std::nullopt;
  file.seekg(std::max<std::streamoff>(0, size - kEnough));
  std::optional<int64_t> step;
  for (std::string line; std::getline(file, line);) {
    const auto object = parse_json(line);
    if (object.is_object() && object.contains("step") && object["step"].is_number_integer())
      step = object["step"].get<int64_t>();
  }
  return step;
}

/// Returns whether the same command resumes the run's newest checkpoint, and not a given path.
bool goes_on(const std::string& resume) { return resume == "auto" || resume == "must"; }

std::optional<checkpoint::Listed> newest_of(const RunFolder& folder) {
  return checkpoint::newest_listed({checkpoint::branch_folder(folder.checkpoints(), branch_of(folder, {}).number)});
}

launch::RunState state_of(const RunFolder& folder, const std::string& again) {
  launch::RunState state{.step = last_step_in(folder.metrics()),
                         .checkpoint_step = {},
                         .checkpoint = {},
                         .stopped_by = {},
                         .again = again};
  try {
    if (const auto newest = newest_of(folder)) {
      state.checkpoint_step = newest->step;
      state.checkpoint = newest->folder.string();
    }
    const auto summary = parse_json_file(folder.summary());
    if (summary.is_object()) state.stopped_by = summary.value("stopped_by", "");
  } catch (const std::exception&) {  // the report omits what cannot be read
  }
  return state;
}

/// Command of a rank in each attempt. With checkpoint.resume: PATH, the first attempt starts there; later ones resume
/// from newer checkpoints of the run.
class RankCommand {
 public:
  RankCommand(std::vector<std::string> arguments, std::string resume, RunFolder folder,
              std::shared_ptr<const JobCheck> check)
      : arguments_(std::move(arguments)),
        resume_(std::move(resume)),
        folder_(std::move(folder)),
        check_(std::move(check)) {}

  std::vector<std::string> operator()() const {
    auto words = arguments_;
    if (!check_->is_done()) words.emplace_back("--silent-if-wrong");
    if (resume_ == "never" || (is_path() && has_saved()))
      words.insert(words.end(), {"--set", "checkpoint.resume=auto"});
    return words;
  }

 private:
  bool is_path() const { return !goes_on(resume_) && resume_ != "never"; }
  bool has_saved() const {
    const auto now = newest_of(folder_);
    return now && (!at_start_ || now->folder != at_start_->folder);
  }

  std::vector<std::string> arguments_;
  std::string resume_;
  RunFolder folder_;
  std::shared_ptr<const JobCheck> check_;
  std::optional<checkpoint::Listed> at_start_ = newest_of(folder_);
};

launch::LaunchRequest plan_launch(const JobStart& spec) {
  const bool names_hosts = spec.launch.hosts || spec.launch.hostfile;
  const auto node = names_hosts ? std::nullopt : launch::read_node();
  return {.plan = node ? launch::plan_nodes(spec.launch, *node)
                       : launch::plan_hosts(spec.launch, launch::allocated_nodes()),
          .node = node,
          .environment = spec.env,
          .device = spec.device,
          .version = version(),
          .measures = false,
          .max_restarts = spec.launch.max_restarts,
          .master_port = static_cast<uint16_t>(spec.launch.master_port),
          .grace_seconds = spec.launch.grace.seconds,
          .host_timeout_seconds = spec.launch.host_timeout.seconds};
}

/// Returns whether the launcher must check the whole job first. Ranks on this machine check it themselves.
bool must_be_sure(const launch::LaunchRequest& plan, const std::string& resume) {
  const bool is_here = std::ranges::all_of(plan.plan.hosts, &launch::Host::is_here);
  return plan.node || !is_here || resume == "never";
}

/// Returns the hosts that are fast enough. A launcher of one node checks only that node.
launch::HostPlan admitted(const launch::LaunchRequest& plan, const launch::AdmissionSpec& admission) {
  const bool needs_all = plan.plan.count.least >= static_cast<int>(plan.plan.hosts.size());
  if (admission.action == "exclude" && needs_all && !plan.node) {
    throw Error(ExitCode::usage, {.what = "no host can be left out: all are needed",
                                  .where = "launch.admission.action: exclude",
                                  .hint = "--nnodes MIN:MAX, or action: refuse"});
  }
  const launch::HostPlan own{.hosts = plan.plan.hosts, .count = {}};
  const launch::HostPlan hosts = launch::admit(
      {.plan = plan.node ? own : plan.plan, .spec = admission, .device = plan.device, .folder = plan.run_folder},
      [](const std::string& line) {
        std::printf("launch  %s\n", line.c_str());
        std::fflush(stdout);
      });
  return plan.node ? plan.plan : hosts;
}

/// Launches ranks that only measure or evaluate: no run folder, no restart.
int launch_measurement(const LaunchRequest& request) {
  JobRequest job = *request.measures;
  job.set.insert(job.set.end(), request.set.begin(), request.set.end());
  const auto loaded = config::load(config::schema_of<JobStart>(), reading_of(job));
  launch::LaunchRequest plan = plan_launch(loaded.as<JobStart>());
  plan.command = [arguments = request.arguments] { return arguments; };
  plan.measures = true;
  plan.max_restarts = 0;
  plan.state = [] { return launch::RunState(); };
  return launch::launch(plan);
}

}  // namespace

int launch_command(const LaunchRequest& request) {
  if (request.measures) return launch_measurement(request);
  if (request.run.dry_run) {
    throw Error(ExitCode::usage, {.what = "a dry run starts no ranks",
                                  .hint = "use gputrain run JOB --dry-run --world-size N to check a job for N ranks"});
  }
  JobRequest job = request.run.job;
  job.set.insert(job.set.end(), request.set.begin(), request.set.end());
  const auto check = std::make_shared<JobCheck>(job);
  const auto spec = check->read();
  if (!spec) return check->exit_code();
  const RunFolder folder{output_dir_of(*spec, job)};
  check_run_folder(folder.path);
  if (spec->checkpoint.mirror) check_mirror(*spec->checkpoint.mirror, folder.path);
  launch::LaunchRequest plan = plan_launch(*spec);
  const std::string& resume = spec->checkpoint.resume;
  if ((must_be_sure(plan, resume) || spec->launch.admission) && !check->passes()) return check->exit_code();
  plan.command = RankCommand(request.arguments, resume, folder, check);
  plan.run_folder = folder.path;
  plan.state = [folder, again = same_command(resume, request.run.is_new)] { return state_of(folder, again); };
  if (spec->launch.admission) plan.plan = admitted(plan, *spec->launch.admission);
  if (!check->is_done()) plan.check_job = [check] { return check->passes() ? 0 : check->exit_code(); };
  // The new folder is created here, so that the logs of this start do not go into the one that rank 0 moves away.
  if (resume == "never" && (!plan.node || plan.node->node == 0)) {
    take_run_folder(folder.path, true, spec->checkpoint.mirror);
  }
  return launch::launch(plan);
}

int agent_command() { return launch::serve_agent(version()); }

}  // namespace gputrain::app
