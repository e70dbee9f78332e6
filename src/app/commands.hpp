// The verbs of the command line; each returns the process's exit code.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/core/export.hpp"

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
  bool accept = false;  // go on although settings changed that may change results
  bool verify = false;  // a missed `expect:` is exit code 4
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
  bool set_aside = false;  // remove those that were set aside too
  bool dry_run = false;
  bool json = false;
};

GPUTRAIN_API int run_command(const RunRequest& request);
GPUTRAIN_API int launch_command(const LaunchRequest& request);
/// What `gputrain launch` starts on each host; speaks with it over stdin and stdout.
GPUTRAIN_API int agent_command();
GPUTRAIN_API int eval_command(const EvalRequest& request);
/// 4 when the step comes out otherwise than recorded.
GPUTRAIN_API int replay_command(const ReplayRequest& request);
GPUTRAIN_API int validate_command(const JobRequest& request, bool json);
GPUTRAIN_API int config_command(const JobRequest& request, bool origin);
GPUTRAIN_API int schema_command();
GPUTRAIN_API int list_command(const std::string& kind);
GPUTRAIN_API int describe_command(const std::string& kind, const std::string& name);
/// `gputrain data audit RUN`
GPUTRAIN_API int audit_command(const std::string& run, bool json);
GPUTRAIN_API int version_command();
GPUTRAIN_API int ckpt_ls_command(const std::string& run, bool json);
/// 5 when a checkpoint is damaged or there is none.
GPUTRAIN_API int ckpt_verify_command(const std::string& path, bool json);
/// As diff(1): 0 when every tensor is equal bit for bit, else 1.
GPUTRAIN_API int ckpt_diff_command(const std::string& a, const std::string& b, bool json);
GPUTRAIN_API int ckpt_prune_command(const PruneRequest& request);

}  // namespace gputrain::app
