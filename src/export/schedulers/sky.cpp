#include <algorithm>

#include <fmt/format.h>

#include "text.hpp"

namespace gputrain::app {
namespace {

constexpr const char* kSkyTask = R"(# Task of SkyPilot: sky jobs launch THIS_FILE
# Fill in: the kinds of GPUs that may be taken; use_spot, if machines may be taken away; cpus, memory.
@NOTES@
name: @LABEL@
num_nodes: @NODES@
resources:
  @GPUS@
  use_spot: false
  image_id: @IMAGE@
  job_recovery: {max_restarts_on_errors: 0, recover_on_exit_codes: [138]}   # 138: saved, asks to be started again
@VOLUMES@
file_mounts: {"/job/job.yaml": @FILE@}
@VARIABLES@
run: |
  cd @FOLDER@
  @COMMAND@
)";

/// Returns the variables of one of SkyPilot's two keys; null asks for `--env NAME` or `--secret NAME`.
std::string named_variables(const JobFacts& facts, bool are_secrets) {
  std::string lines;
  for (const JobVariable& variable : facts.variables)
    if (variable.is_secret == are_secrets)
      lines += std::string(variable.is_needed ? "" : "# ") + "  " + yaml_text(variable.name) + ": null\n";
  const bool is_used = std::ranges::any_of(facts.variables, [&](const JobVariable& variable) {
    return variable.is_secret == are_secrets && variable.is_needed;
  });
  if (lines.empty()) return lines;
  const std::string key = are_secrets ? "secrets" : "envs", option = are_secrets ? "--secret" : "--env";
  return (is_used ? "" : "# ") + key + ":   # sky jobs launch " + option + " NAME, for each\n" + lines;
}

class SkyTask final : public SchedulerFile {
 public:
  using SchedulerFile::SchedulerFile;
  static SchedulerAbilities abilities() { return {.has_containers = true}; }

  std::string text(const JobFacts& facts) const override {
    std::string volumes = facts.volumes.empty() ? "" : "volumes:   # fill in: `sky volumes apply` makes them\n";
    for (const auto& [name, path] : facts.volumes) volumes += "  " + yaml_text(path) + ": " + yaml_text(name) + "\n";
    const std::string fetch = facts.fetched.empty() ? "" : shell_words({"gputrain", "fetch", facts.fetched}) + " && ";
    return filled(
        kSkyTask,
        {{"NOTES", container_notes(facts)},
         {"LABEL", yaml_text(facts.label)},
         {"NODES", std::to_string(facts.nodes)},
         {"GPUS", facts.gpus > 0 ? fmt::format("accelerators: {{H100: {0}, H200: {0}, A100-80GB: {0}}}", facts.gpus)
                                 : "cpus: 8+"},
         {"IMAGE", yaml_text("docker:" + facts.image)},
         {"VOLUMES", volumes},
         {"FILE", yaml_text(facts.file)},
         {"VARIABLES", named_variables(facts, false) + named_variables(facts, true)},
         {"FOLDER", shell_words({path_in_container(facts, "")})},
         {"COMMAND", fetch + "exec " + shell_words(launch_command(facts, kJobInContainer))}});
  }
};

const config::Registered<SkyTask, config::NoOptions> registered_sky{schedulers(), "sky", "SkyPilot: a task"};

}  // namespace
}  // namespace gputrain::app
