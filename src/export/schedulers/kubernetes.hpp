// What the three kinds of jobs of Kubernetes have in common.
#pragma once

#include <string>
#include <vector>

#include "gputrain/export/scheduler_files.hpp"

namespace gputrain::app {

/// Returns the object that holds the job's file, and the comments at the head of the file.
std::string kubernetes_head(const JobFacts& facts, const std::string& kind);

/// Returns the spec of an Indexed Job. `first_node`: the name of its first pod; `subdomain`: the service that makes the
/// names of pods, if the spec has to say it.
std::string indexed_job_spec(const JobFacts& facts, const std::string& first_node, const std::string& subdomain);

/// Returns rules by which Kubernetes follows the exit codes of a container.
std::string pod_failure_policy(const std::string& container);

/// Returns variables of the container, by reference to a Secret.
std::string secret_variables(const JobFacts& facts);
/// Returns volumes of a pod, and where its container mounts them.
std::string pod_volumes(const JobFacts& facts);
std::string volume_mounts(const JobFacts& facts);

/// Returns words of a container's command, in which Kubernetes would read $(NAME) as a variable.
std::vector<std::string> container_command(std::vector<std::string> words);

}  // namespace gputrain::app
