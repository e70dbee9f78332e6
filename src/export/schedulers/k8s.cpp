#include "kubernetes.hpp"
#include "text.hpp"

namespace gputrain::app {
namespace {

constexpr const char* kService = R"(apiVersion: v1
kind: Service   # gives each pod a name
metadata: {name: "@LABEL@"}
spec:
  clusterIP: None
  publishNotReadyAddresses: true
  selector: {batch.kubernetes.io/job-name: "@LABEL@"}
---
apiVersion: batch/v1
kind: Job
metadata: {name: "@LABEL@"}
spec:
  @SPEC@
)";

class IndexedJob final : public SchedulerFile {
 public:
  using SchedulerFile::SchedulerFile;
  static SchedulerAbilities abilities() { return {.has_containers = true}; }

  std::string text(const JobFacts& facts) const override {
    return kubernetes_head(facts, "Indexed Job of Kubernetes 1.31 or later: kubectl apply -f THIS_FILE") +
           filled(kService, {{"LABEL", facts.label},
                             {"SPEC", indexed_job_spec(facts, facts.label + "-0." + facts.label, facts.label)}});
  }
};

const config::Registered<IndexedJob, config::NoOptions> registered_k8s{
    schedulers(), "k8s", "Kubernetes: an Indexed Job, a headless Service and a ConfigMap"};

}  // namespace
}  // namespace gputrain::app
