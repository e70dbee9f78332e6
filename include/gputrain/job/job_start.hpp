// Part of a job that a launcher reads without LibTorch: the values of the top level and the sections `checkpoint`,
// `launch` and `env`. job_spec.hpp adds the other sections.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"
#include "gputrain/config/load.hpp"
#include "gputrain/job/job_request.hpp"
#include "gputrain/launch/hosts.hpp"
#include "gputrain/train/spec.hpp"

namespace gputrain::app {

/// Top-level values, all of them, because ${...} may refer to each.
struct JobStart {
  int64_t schema = 1;
  std::optional<std::string> name;
  int64_t seed = 1337;
  bool deterministic = false;
  std::optional<std::string> output_dir;
  std::string device = "auto";
  std::optional<std::string> alloc_conf;
  std::string precision = "fp32";
  std::vector<std::string> plugins;
  train::CheckpointSpec checkpoint;
  launch::LaunchSpec launch;
  std::map<std::string, std::string> env;

  static void describe(config::Description<JobStart>& d);
};

/// Checks rules for several keys. For `describe` of JobStart and of derived structs.
void check_job_start(const JobStart& spec, config::SpecIssues& issues);

config::Request reading_of(const JobRequest& request);
std::string name_of(const JobStart& spec, const JobRequest& request);
/// Returns the path of the run folder.
std::filesystem::path output_dir_of(const JobStart& spec, const JobRequest& request);
/// Returns, in words, the command that goes on from a run's newest checkpoint. `is_new`: this one has --new.
std::string same_command(const std::string& resume, bool is_new);

}  // namespace gputrain::app
