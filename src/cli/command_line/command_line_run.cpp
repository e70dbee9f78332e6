// Verbs that train, and the launcher of ranks.
#include <filesystem>
#include <sstream>

#include "../library.hpp"
#include "command_line.hpp"
#include "command_line_error.hpp"
#include "options.hpp"

namespace gputrain {
namespace {

/// Returns the file with the job of a run; empty: the folder has none.
std::string job_of_run(const std::string& folder) {
  const auto resolved = std::filesystem::path(folder) / "job.resolved.yaml";
  return std::filesystem::exists(resolved) ? resolved.string() : "";
}

/// Returns the job that says how ranks start: that of a run folder, or none if the model is a published one.
app::JobRequest evaluated_job(const app::EvalRequest& eval) {
  app::JobRequest job = eval.job;
  const bool is_named = !eval.suite.file.empty() || std::filesystem::is_directory(job.file);
  if (is_named && !std::filesystem::is_regular_file(job.file)) job.file = job_of_run(job.file);
  return job;
}

/// Carries out --new, below other settings: a launcher sets `auto` in later attempts, which go on.
void set_to_start_over(std::vector<std::string>& set) {
  for (const std::string& one : set) {
    if (!one.starts_with("checkpoint.resume=") || one.ends_with("=auto")) continue;
    throw Error(ExitCode::usage,
                {.what = "--new starts over, and --set " + one + " says otherwise", .hint = "one of them"});
  }
  set.insert(set.begin(), "checkpoint.resume=never");
}

}  // namespace

void CommandLine::add_run() {
  auto* verb = app.add_subcommand("run", "train");
  add_job(*verb, run.job);
  add_output_dir(*verb, run.job);
  auto* dry =
      verb->add_flag("--dry-run", run.dry_run, "check everything short of training: data, model, memory, run folder");
  auto& dry_run_request = run.dry_run_request;
  auto* world = verb->add_option("--world-size", dry_run_request.world_size,
                                 "with --dry-run: check the job for this many ranks, on this machine")
                    ->check(CLI::Range(1, 1 << 20))
                    ->needs(dry);
  verb->add_option_function<int>(
          "--nproc-per-node",
          [this](int ranks) { run.job.set.push_back("launch.nproc_per_node=" + std::to_string(ranks)); },
          "with --world-size: ranks on each host")
      ->check(CLI::Range(1, 4096))
      ->needs(world);
  verb->add_option("--device-memory", dry_run_request.device_memory,
                   "with --world-size: memory of each rank's device, such as 80GiB")
      ->check(not_empty)
      ->needs(world);
  verb->add_flag("--json", dry_run_request.json, "with --world-size: print one JSON document")->needs(world);
  auto* accept = verb->add_flag("--accept", run.accept, "resume although settings changed that may change the results");
  verb->add_flag("--new", run.is_new, "start over; an earlier run in the run folder is kept beside it, as FOLDER.1")
      ->excludes(accept);
  verb->add_flag("--verify", run.verify, "exit with 4 when the result misses the job's expect: band");
  verb->add_option("--profile", run.profile, "record so many steps: a trace of each rank, and what cost most")
      ->check(CLI::Range(1, 1000))
      ->excludes(dry);
  verb->add_flag("--smoke", run.smoke, "evaluate some samples and save after three steps, to see early what fails late")
      ->excludes(dry);
  verb->add_flag("--silent-if-wrong", run.silent_if_wrong, "`launch` reports errors in the job")->group("");
  verb->callback([this] {
    if (run.is_new) set_to_start_over(run.job.set);
    action = [this] { return app::library().run(run); };
  });
}

void CommandLine::add_launch() {
  auto* verb = app.add_subcommand("launch", "start, watch and restart the ranks of a job, here or on many hosts");
  const auto add = [&](const std::string& option, const std::string& key, const std::string& help) {
    verb->add_option_function<std::string>(
        option, [this, key](const std::string& text) { add_launch_setting(key, text); }, help);
  };
  add("--hosts", "hosts", "hosts, with ranks per host: h1:4,h2:4; any name that ssh accepts (default: this host)");
  add("--hostfile", "hostfile", "the same from a file: `h1 slots=4` or `h1:4` per line");
  add("--nnodes", "nnodes", "number of hosts; MIN:MAX continues without lost hosts and takes them back");
  add("--nproc-per-node", "nproc_per_node", "ranks per host, if --hosts gives no number; auto: one per GPU");
  add("--max-restarts", "max_restarts", "starts after the first one (default: 3)");
  verb->prefix_command();
  verb->footer(
      "Then the command of every rank:\n"
      "  gputrain launch --nproc-per-node 4 run job.yaml [options of run]\n"
      "  gputrain launch --nproc-per-node 4 eval job.yaml [options of eval]\n"
      "  gputrain launch --nproc-per-node 4 replay runs/x [options of replay]\n"
      "  gputrain launch --hosts h1:8,h2:8 bench comm [options of bench comm]\n"
      "The same options are keys of the job: `gputrain describe job`, group launch.");
  verb->callback([this, verb] {
    launch.arguments = verb->remaining();
    action = [this] { return start_ranks(); };
  });
  auto* agent = app.add_subcommand("agent", "what `launch` starts on each host")->group("");
  agent->callback([this] { action = [] { return app::agent_command(); }; });
}

void CommandLine::add_launch_setting(const std::string& key, const std::string& text) {
  const auto quoted = [](const std::string& word) {
    std::string yaml = "'";
    for (const char c : word) yaml += c == '\'' ? "''" : std::string(1, c);
    return yaml + "'";
  };
  std::string value = text;
  if (key == "hosts") {
    std::string list;
    std::istringstream words(text);
    for (std::string word; std::getline(words, word, ',');) list += (list.empty() ? "" : ", ") + quoted(word);
    value = "[" + list + "]";
  } else if (key == "hostfile" || key == "nnodes") {
    value = quoted(text);
  }
  launch.set.push_back("launch." + key + "=" + value);
}

int CommandLine::start_ranks() {
  const auto& words = launch.arguments;
  const bool measures = words.size() > 1 && words[0] == "bench" && words[1] == "comm";
  const bool evaluates = !words.empty() && words[0] == "eval", replays = !words.empty() && words[0] == "replay";
  if (words.empty() || (words[0] != "run" && !measures && !evaluates && !replays))
    throw app::launched_command_error(*app.get_subcommand("launch"), words);
  CommandLine ranks;
  if (const auto code = ranks.read(words)) return *code;
  launch.run = ranks.run;
  if (measures) launch.measures = ranks.bench_comm.job;
  if (evaluates) launch.measures = evaluated_job(ranks.eval);
  if (replays) launch.measures = app::JobRequest{.file = job_of_run(ranks.replay.run), .set = {}, .output_dir = {}};
  return app::launch_command(launch);
}

}  // namespace gputrain
