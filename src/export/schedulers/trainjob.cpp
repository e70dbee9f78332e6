#include <fmt/format.h>

#include "kubernetes.hpp"
#include "text.hpp"

namespace gputrain::app {
namespace {

constexpr const char* kTrainJob = R"(@HEAD@
# The runtime decides what follows an exit code. Give the Job of its template this, and not its image or command:
@POLICY@
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
metadata: {name: "@LABEL@"}
spec:
  runtimeRef: {name: torch-distributed}   # sets PET_NNODES, PET_NODE_RANK and so on
  trainer:
    image: @IMAGE@
    command: @COMMAND@
    numNodes: @NODES@
    numProcPerNode: @RANKS@
    @VARIABLES@
    @RESOURCES@
  runtimePatches:
    - manager: gputrain/export
      trainingRuntimeSpec:
        template:
          spec:
            replicatedJobs:
              - name: node
                template:
                  spec:
                    template:
                      spec:
                        terminationGracePeriodSeconds: @GRACE@   # launch.grace, and what the launcher needs
                        securityContext: {fsGroup: 10001}   # the image's user, who writes into the volumes
                        containers:
                          - name: node
                            volumeMounts:
                              @MOUNTS@
                        volumes:
                          @VOLUMES@
)";

/// Returns lines as comments.
std::string commented(const std::string& lines) {
  std::string out = "#   ";
  for (const char c : lines) out += c == '\n' ? std::string("\n#   ") : std::string(1, c);
  return out.substr(0, out.rfind('\n') + 1);
}

/// Returns the shell that starts the command in the folder of the volumes, which a TrainJob cannot say otherwise.
std::vector<std::string> in_folder(const JobFacts& facts) {
  std::string line = "cd " + shell_words({path_in_container(facts, "")}) + " && ";
  if (!facts.fetched.empty()) line += shell_words({"gputrain", "fetch", facts.fetched}) + " && ";
  return {"sh", "-c", line + "exec " + shell_words(launch_command(facts, kJobInContainer))};
}

class TrainJob final : public SchedulerFile {
 public:
  using SchedulerFile::SchedulerFile;
  static SchedulerAbilities abilities() { return {.has_containers = true}; }

  std::string text(const JobFacts& facts) const override {
    const std::string variables = secret_variables(facts);
    return filled(kTrainJob,
                  {{"HEAD", kubernetes_head(facts, "TrainJob of Kubeflow Trainer 2: kubectl apply -f THIS_FILE")},
                   {"POLICY", commented(pod_failure_policy("node"))},
                   {"LABEL", facts.label},
                   {"IMAGE", yaml_text(facts.image)},
                   {"COMMAND", yaml_list(container_command(in_folder(facts)))},
                   {"NODES", std::to_string(facts.nodes)},
                   {"RANKS", std::to_string(facts.ranks)},
                   {"VARIABLES", variables.empty() ? "" : filled("env:\n  @LINES@\n", {{"LINES", variables}})},
                   {"RESOURCES",
                    facts.gpus > 0 ? fmt::format("resourcesPerNode: {{limits: {{nvidia.com/gpu: \"{}\"}}}}", facts.gpus)
                                   : "resourcesPerNode: {requests: {cpu: \"1\"}}   # fill in: cpu, memory"},
                   {"GRACE", std::to_string(facts.grace_seconds)},
                   {"MOUNTS", volume_mounts(facts)},
                   {"VOLUMES", pod_volumes(facts)}});
  }
};

const config::Registered<TrainJob, config::NoOptions> registered_trainjob{
    schedulers(), "trainjob", "Kubeflow Trainer 2: a TrainJob and a ConfigMap"};

}  // namespace
}  // namespace gputrain::app
