#include "kubernetes.hpp"
#include "text.hpp"

namespace gputrain::app {
namespace {

constexpr const char* kJobSet = R"(apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: "@LABEL@"}
spec:
  network: {enableDNSHostnames: true, subdomain: "@LABEL@", publishNotReadyAddresses: true}
  failurePolicy:
    maxRestarts: @RESTARTS@   # launch.max_restarts
    rules:
      - name: notMended
        action: FailJobSet   # an exit code after which a restart does not help
        onJobFailureReasons: [PodFailurePolicy]
  replicatedJobs:
    - name: node
      replicas: 1
      template:
        spec:
          @SPEC@
)";

class JobSetFile final : public SchedulerFile {
 public:
  using SchedulerFile::SchedulerFile;
  static SchedulerAbilities abilities() { return {.has_containers = true}; }

  std::string text(const JobFacts& facts) const override {
    const std::string first = facts.label + "-node-0-0." + facts.label;
    return kubernetes_head(facts, "JobSet of Kubernetes: kubectl apply -f THIS_FILE") +
           filled(kJobSet, {{"LABEL", facts.label},
                            {"RESTARTS", std::to_string(facts.max_restarts)},
                            {"SPEC", indexed_job_spec(facts, first, "")}});
  }
};

const config::Registered<JobSetFile, config::NoOptions> registered_jobset{schedulers(), "jobset",
                                                                          "Kubernetes: a JobSet and a ConfigMap"};

}  // namespace
}  // namespace gputrain::app
