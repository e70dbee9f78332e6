// The part of a job that whoever starts its ranks reads: all but the keys that models, data and optimizers describe,
// which are LibTorch's users.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "gputrain/config/describe.hpp"
#include "gputrain/config/load.hpp"
#include "gputrain/job/commands.hpp"
#include "gputrain/launch/hosts.hpp"
#include "gputrain/train/spec.hpp"

namespace gputrain::app {

/// With every top-level value, as ${...} may name each of them.
struct JobStart {
  int64_t schema = 1;
  std::optional<std::string> name;
  int64_t seed = 1337;
  bool deterministic = false;
  std::optional<std::string> output_dir;
  std::string device = "auto";
  std::optional<std::string> alloc_conf;
  std::string precision = "fp32";
  train::CheckpointSpec checkpoint;
  launch::LaunchSpec launch;
  std::map<std::string, std::string> env;

  static void describe(config::Description<JobStart>& d);
};

/// What no key by itself tells: for `describe` of a JobStart and of what derives from it.
void check_job_start(const JobStart& spec, config::Complaints& complaints);

config::Request reading_of(const JobRequest& request);
std::string name_of(const JobStart& spec, const JobRequest& request);
/// The run folder.
std::filesystem::path output_dir_of(const JobStart& spec, const JobRequest& request);

}  // namespace gputrain::app
