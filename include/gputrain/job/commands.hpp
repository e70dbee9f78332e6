// The verbs of the command line; each returns the process's exit code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace gputrain::app {

/// What every verb that reads a job is given.
struct JobRequest {
  std::string file;
  std::vector<std::string> set;  // --set a.b=YAML
  std::optional<std::string> output_dir;
};

/// What `run --dry-run --world-size` asks about: ranks that are not there.
struct RehearsalRequest {
  int world_size = 0;         // 0: not asked
  std::string device_memory;  // "80GiB"; empty: not said
  bool json = false;
};

struct RunRequest {
  JobRequest job;
  bool dry_run = false;
  RehearsalRequest rehearsal;
  bool accept = false;           // go on although settings changed that may change results
  bool verify = false;           // a missed `expect:` is exit code 4
  bool silent_if_wrong = false;  // of a job that is wrong the launcher tells
};

/// `gputrain launch`: its own options, as settings of the job, and the command that every rank runs.
struct LaunchRequest {
  RunRequest run;
  std::vector<std::string> set;        // "launch.max_restarts=2"
  std::vector<std::string> arguments;  // "run", "job.yaml", ...: of every rank
};

struct EvalRequest {
  JobRequest job;
  std::string weights;  // model.safetensors or a run folder; empty: the job's own run folder
  std::string on = "val";
  bool json = false;
};

struct ReplayRequest {
  std::string run;  // a run folder
  int64_t step = 0;
  bool json = false;
};

struct PruneRequest {
  std::string run;  // a run folder or its ckpt/
  int64_t keep_last = 0, keep_best = 0, keep_every = 0;
  bool set_aside = false;  // remove those that were set aside, or are of other branches, too
  bool dry_run = false;
  bool json = false;
};

/// `gputrain bench train`; lists that are empty: as the job says.
struct BenchRequest {
  JobRequest job;
  std::vector<std::string> precision, checkpointing;
  std::vector<int64_t> micro_batch, accumulation;
  int64_t steps = 30, warmup = 10, rounds = 1;
  bool synthetic = false;
  bool json = false;
};

// Of the program itself, which comes up without LibTorch.
int launch_command(const LaunchRequest& request);
/// What `gputrain launch` starts on each host; speaks with it over stdin and stdout.
int agent_command();

// Of libgputrain.so.
int run_command(const RunRequest& request);
int eval_command(const EvalRequest& request);
/// 4 when the step comes out otherwise than recorded.
int replay_command(const ReplayRequest& request);
/// 6 when no combination fits into memory.
int bench_train_command(const BenchRequest& request);
/// One combination, the job itself, in this process; prints its row as JSON.
int bench_one_command(const BenchRequest& request);
int validate_command(const JobRequest& request, bool json);
int config_command(const JobRequest& request, bool origin);
int schema_command();
int list_command(const std::string& kind);
int describe_command(const std::string& kind, const std::string& name);
/// `gputrain data audit RUN`
int audit_command(const std::string& run, bool json);
int version_command();
int ckpt_ls_command(const std::string& run, bool json);
/// 5 when a checkpoint is damaged or there is none.
int ckpt_verify_command(const std::string& path, bool json);
/// As diff(1): 0 when every tensor is equal bit for bit, else 1.
int ckpt_diff_command(const std::string& a, const std::string& b, bool json);
int ckpt_prune_command(const PruneRequest& request);

/// What the program finds in the library, under the name gputrain_verbs.
struct Verbs {
  void (*check)();  // throws Error(environment) where the library was built wrong; before any verb
  decltype(&run_command) run;
  decltype(&eval_command) eval;
  decltype(&replay_command) replay;
  decltype(&bench_train_command) bench_train;
  decltype(&bench_one_command) bench_one;
  decltype(&validate_command) validate;
  decltype(&config_command) config;
  decltype(&schema_command) schema;
  decltype(&list_command) list;
  decltype(&describe_command) describe;
  decltype(&audit_command) audit;
  decltype(&version_command) version;
  decltype(&ckpt_ls_command) ckpt_ls;
  decltype(&ckpt_verify_command) ckpt_verify;
  decltype(&ckpt_diff_command) ckpt_diff;
  decltype(&ckpt_prune_command) ckpt_prune;
};

}  // namespace gputrain::app
