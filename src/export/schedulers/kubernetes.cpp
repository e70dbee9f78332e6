#include "kubernetes.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "text.hpp"

namespace gputrain::app {
namespace {

constexpr const char* kHead = R"(# @KIND@
# Fill in: what your cluster wants besides, such as a namespace, a queue, tolerations.
@NOTES@
apiVersion: v1
kind: ConfigMap
metadata:
  name: "@LABEL@-job"
data:
  job.yaml: @TEXT@---
)";

constexpr const char* kSpec = R"(completionMode: Indexed   # each pod knows its number
completions: @NODES@
parallelism: @NODES@
backoffLimit: @FAILURES@   # pods that may fail: launch.max_restarts for each
@POLICY@
template:
  @ANNOTATIONS@
  spec:
    @SUBDOMAIN@
    restartPolicy: Never   # a new pod starts instead
    terminationGracePeriodSeconds: @GRACE@   # launch.grace, and what the launcher needs
    securityContext: {fsGroup: 10001}   # the image's user, who writes into the volumes
    @FETCH@
    containers:
      - name: gputrain
        image: @IMAGE@
        command: @COMMAND@
        workingDir: @FOLDER@
        env:
          - {name: PET_NNODES, value: "@NODES@"}
          - {name: PET_NPROC_PER_NODE, value: "@RANKS@"}
          - {name: PET_MASTER_ADDR, value: "@FIRST@"}
          - {name: PET_MASTER_PORT, value: "29500"}
          - name: PET_NODE_RANK
            valueFrom:
              fieldRef: {fieldPath: "metadata.annotations['batch.kubernetes.io/job-completion-index']"}
          @VARIABLES@
        @RESOURCES@
        volumeMounts:
          @MOUNTS@
    volumes:
      @VOLUMES@
)";

/// Fetches a model before the container starts, into a folder of the pod or a volume there.
constexpr const char* kFetch = R"(initContainers:
  - name: fetch
    image: @IMAGE@
    command: @COMMAND@
    env:
      - {name: HF_HOME, value: /cache}
      @VARIABLES@
    volumeMounts:
      - {name: cache, mountPath: /cache}
)";

constexpr const char* kPolicy = R"(podFailurePolicy:
  rules:
    - action: FailJob   # what a restart does not mend
      onExitCodes: {containerName: "@CONTAINER@", operator: In, values: [2, 3, 4, 5, 6, 93]}
    - action: Ignore   # evicted, preempted, drained: starts again and does not count
      onPodConditions: [{type: DisruptionTarget, status: "True"}]
    - action: Ignore   # saved, and asks to be started again
      onExitCodes: {containerName: "@CONTAINER@", operator: In, values: [138]}
)";

/// Returns a text as a block of YAML, for a key that is indented by two spaces.
std::string block_text(const std::string& text) {
  const bool is_plain = std::ranges::all_of(text, [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == '\n' || byte == '\t' || (byte >= ' ' && byte != 127);
  });
  if (!is_plain) return yaml_text(text) + "\n";
  return filled("|2\n    @TEXT@\n", {{"TEXT", text.substr(0, text.find_last_not_of('\n') + 1)}});
}

std::string annotations(const JobFacts& facts) {
  if (!facts.metrics_port || !facts.serves_others) return {};
  return fmt::format(
      "metadata:   # the pod of rank 0 alone answers\n"
      "  annotations: {{prometheus.io/scrape: \"true\", prometheus.io/port: \"{}\", prometheus.io/path: /metrics}}\n",
      *facts.metrics_port);
}

}  // namespace

std::vector<std::string> container_command(std::vector<std::string> words) {
  for (std::string& word : words) word = with_double_dollars(word);
  return words;
}

std::string pod_failure_policy(const std::string& container) { return filled(kPolicy, {{"CONTAINER", container}}); }

std::string secret_variables(const JobFacts& facts) {
  std::string lines;
  if (!facts.fetched.empty()) lines += "- {name: HF_HOME, value: /cache}\n";
  for (const JobVariable& variable : facts.variables)
    lines += fmt::format("- {{name: {0}, valueFrom: {{secretKeyRef: {{name: {1}-env, key: {0}{2}}}}}}}\n",
                         yaml_text(variable.name), facts.label, variable.is_needed ? "" : ", optional: true");
  return lines;
}

std::string pod_volumes(const JobFacts& facts) {
  std::string lines = fmt::format("- {{name: job, configMap: {{name: {}-job}}}}\n", facts.label);
  for (size_t i = 0; i < facts.volumes.size(); ++i)
    lines += fmt::format("- {{name: volume-{}, persistentVolumeClaim: {{claimName: {}}}}}\n", i,
                         yaml_text(facts.volumes[i].name));
  if (!facts.fetched.empty()) lines += "- {name: cache, emptyDir: {}}\n";
  if (facts.gpus > 1) lines += "- {name: shm, emptyDir: {medium: Memory, sizeLimit: 1Gi}}   # for NCCL\n";
  return lines;
}

std::string volume_mounts(const JobFacts& facts) {
  std::string lines = "- {name: job, mountPath: /job}\n";
  for (size_t i = 0; i < facts.volumes.size(); ++i)
    lines += fmt::format("- {{name: volume-{}, mountPath: {}}}\n", i, yaml_text(facts.volumes[i].path));
  if (!facts.fetched.empty()) lines += "- {name: cache, mountPath: /cache}\n";
  if (facts.gpus > 1) lines += "- {name: shm, mountPath: /dev/shm}\n";
  return lines;
}

std::string kubernetes_head(const JobFacts& facts, const std::string& kind) {
  std::string notes;
  for (const Volume& volume : facts.volumes)
    notes +=
        comment("Fill in: the claim " + volume.name + " must exist, and let all pods write at once (ReadWriteMany).");
  if (!facts.variables.empty()) {
    std::string literals;
    for (const JobVariable& variable : facts.variables)
      literals += " --from-literal=" + variable.name + "=\"$" + variable.name + "\"";
    notes += comment("Once: kubectl create secret generic " + facts.label + "-env" + literals);
  }
  return filled(kHead, {{"KIND", kind},
                        {"NOTES", notes + container_notes(facts)},
                        {"LABEL", facts.label},
                        {"TEXT", block_text(facts.text)}});
}

std::string indexed_job_spec(const JobFacts& facts, const std::string& first_node, const std::string& subdomain) {
  const std::string image = yaml_text(facts.image), variables = secret_variables(facts);
  const std::string fetch =
      facts.fetched.empty()
          ? ""
          : filled(kFetch, {{"IMAGE", image},
                            {"COMMAND", yaml_list(container_command({"gputrain", "fetch", facts.fetched}))},
                            {"VARIABLES", "- {name: HF_TOKEN, valueFrom: {secretKeyRef: {name: " + facts.label +
                                              "-env, key: HF_TOKEN, optional: true}}}\n"}});
  return filled(
      kSpec,
      {{"NODES", std::to_string(facts.nodes)},
       {"FAILURES", std::to_string(facts.max_restarts * facts.nodes)},
       {"POLICY", pod_failure_policy("gputrain")},
       {"ANNOTATIONS", annotations(facts)},
       {"SUBDOMAIN", subdomain.empty() ? "" : "subdomain: " + yaml_text(subdomain)},
       {"GRACE", std::to_string(facts.grace_seconds)},
       {"FETCH", fetch},
       {"IMAGE", image},
       {"COMMAND", yaml_list(container_command(launch_command(facts, kJobInContainer)))},
       {"FOLDER", yaml_text(path_in_container(facts, ""))},
       {"RANKS", std::to_string(facts.ranks)},
       {"FIRST", first_node},
       {"VARIABLES", variables},
       {"RESOURCES",
        facts.gpus > 0
            ? fmt::format("resources: {{limits: {{nvidia.com/gpu: \"{}\"}}}}   # fill in: cpu, memory", facts.gpus)
            : "# Fill in, for instance: resources: {requests: {cpu: \"8\", memory: 16Gi}}"},
       {"MOUNTS", volume_mounts(facts)},
       {"VOLUMES", pod_volumes(facts)}});
}

}  // namespace gputrain::app
