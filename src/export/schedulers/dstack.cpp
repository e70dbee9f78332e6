#include <algorithm>

#include <fmt/format.h>

#include "text.hpp"

namespace gputrain::app {
namespace {

constexpr const char* kDstackTask = R"(# Task of dstack: dstack apply -f THIS_FILE
# Fill in: the kind of GPU, if it matters (gpu: {name: H100, count: 8}); spot_policy: auto for machines that may go.
@NOTES@
type: task
name: @LABEL@
nodes: @NODES@
image: @IMAGE@
working_dir: @FOLDER@
files: [@FILE@]
@VARIABLES@
commands:
  - |
    @COMMAND@
resources:
  @GPUS@
  shm_size: 1GB
@VOLUMES@
retry: {on_events: [no-capacity, interruption], duration: 1d}
stop_duration: @GRACE@s   # launch.grace, and what the launcher needs
)";

class DstackDstackTask final : public SchedulerFile {
 public:
  using SchedulerFile::SchedulerFile;
  static SchedulerAbilities abilities() { return {.has_containers = true}; }

  std::string text(const JobFacts& facts) const override {
    std::vector<std::string> volumes;
    for (const auto& [name, path] : facts.volumes) volumes.push_back(name + ":" + path);
    std::string variables;
    for (const JobVariable& variable : facts.variables)
      variables += std::string(variable.is_needed ? "" : "# ") + "  - " + yaml_text(variable.name) + "\n";
    const bool has_needed = std::ranges::any_of(facts.variables, &JobVariable::is_needed);
    if (!variables.empty())
      variables =
          std::string(has_needed ? "" : "# ") + "env:   # values come from the shell of `dstack apply`\n" + variables;
    const std::string fetch =
        facts.fetched.empty() ? "" : shell_words({"gputrain", "fetch", facts.fetched}) + " || exit\n";
    return filled(kDstackTask, {{"NOTES", container_notes(facts)},
                                {"LABEL", yaml_text(facts.label)},
                                {"NODES", std::to_string(facts.nodes)},
                                {"IMAGE", yaml_text(facts.image)},
                                {"FOLDER", yaml_text(path_in_container(facts, ""))},
                                {"FILE", yaml_text(facts.file + ":" + kJobInContainer)},
                                {"VARIABLES", variables},
                                {"COMMAND", fetch + repeated(shell_words(launch_command(facts, kJobInContainer)))},
                                {"GPUS", facts.gpus > 0 ? fmt::format("gpu: {}", facts.gpus) : "cpu: 8.."},
                                {"VOLUMES", volumes.empty() ? "" : "volumes: " + yaml_list(volumes)},
                                {"GRACE", std::to_string(facts.grace_seconds)}});
  }
};

const config::Registered<DstackDstackTask, config::NoOptions> registered_dstack{schedulers(), "dstack",
                                                                                "dstack: a task"};

}  // namespace
}  // namespace gputrain::app
