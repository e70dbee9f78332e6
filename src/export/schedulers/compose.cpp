#include <fmt/format.h>

#include "text.hpp"

namespace gputrain::app {
namespace {

constexpr const char* kCompose =
    R"(# Docker Compose, one machine: docker compose -f THIS_FILE up. After exit code 138 the same command goes on.
@NOTES@
name: @LABEL@
services:
  gputrain:
    image: @IMAGE@
    init: true   # passes signals on from the first moment
    entrypoint: ["gputrain"]
    command: @COMMAND@
    working_dir: @FOLDER@
    @VARIABLES@
    volumes:
      - {type: bind, source: @FILE@, target: /job/job.yaml, read_only: true}
      @MOUNTS@
    restart: "no"   # gputrain restarts ranks by itself
    stop_grace_period: @GRACE@s   # launch.grace, and what the launcher needs
    shm_size: 1gb
    ulimits: {memlock: -1}
    @GPUS@
@VOLUMES@
)";

constexpr const char* kGpus = R"(deploy:
  resources:
    reservations:
      devices: [{driver: nvidia, count: @COUNT@, capabilities: [gpu]}]
)";

std::string compose_text(const std::string& text) { return yaml_text(with_double_dollars(text)); }

class ComposeFile final : public SchedulerFile {
 public:
  using SchedulerFile::SchedulerFile;
  static SchedulerAbilities abilities() { return {.has_containers = true, .has_nodes = false}; }

  std::string text(const JobFacts& facts) const override {
    std::string mounts, volumes, variables, command;
    for (const auto& [name, path] : facts.volumes) {
      const bool is_folder = name.starts_with('/') || name.starts_with('.') || name.starts_with('~');
      mounts += fmt::format("- {{type: {}, source: {}, target: {}}}\n", is_folder ? "bind" : "volume",
                            compose_text(name), compose_text(path));
      if (!is_folder) volumes += "  " + compose_text(name) + ": {external: true}   # fill in: docker volume create\n";
    }
    for (const auto& [name, is_secret, is_needed] : facts.variables)
      variables += fmt::format("  {}: {}\n", yaml_text(name),
                               is_needed ? yaml_text("${" + name + ":?set it in the shell}") : "null");
    for (const std::string& word : launch_command(facts, kJobInContainer))
      if (word != "gputrain" || !command.empty()) command += (command.empty() ? "" : ", ") + compose_text(word);
    return filled(
        kCompose,
        {{"NOTES",
          container_notes(facts) +
              (facts.fetched.empty()
                   ? ""
                   : comment("Once, with --volume cache:/home/gputrain/.cache: docker compose -f THIS_FILE run --rm "
                             "gputrain fetch " +
                             facts.fetched))},
         {"LABEL", yaml_text(facts.label)},
         {"IMAGE", compose_text(facts.image)},
         {"COMMAND", "[" + command + "]"},
         {"FOLDER", compose_text(path_in_container(facts, ""))},
         {"VARIABLES", variables.empty() ? "" : "environment:\n" + variables},
         {"FILE", compose_text(facts.file)},
         {"MOUNTS", mounts},
         {"GRACE", std::to_string(facts.grace_seconds)},
         {"GPUS", facts.gpus > 0 ? filled(kGpus, {{"COUNT", std::to_string(facts.gpus)}}) : ""},
         {"VOLUMES", volumes.empty() ? "" : "volumes:\n" + volumes}});
  }
};

const config::Registered<ComposeFile, config::NoOptions> registered_compose{schedulers(), "compose",
                                                                            "Docker Compose: a service on one machine"};

}  // namespace
}  // namespace gputrain::app
