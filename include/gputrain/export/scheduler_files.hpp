// Files with which schedulers run a job: one `gputrain launch` per node, no ssh between the nodes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/catalog.hpp"
#include "gputrain/job/job.hpp"

namespace gputrain::app {

/// Place in a container where something that outlives it is mounted.
struct Volume {
  std::string name, path;  // what the scheduler calls it; absolute path
};

/// Variable that the job or one of its trackers reads. Files name it and never have its value.
struct JobVariable {
  std::string name;
  bool is_secret = false, is_needed = true;  // by its name; false: a run starts without it
};

/// Path that a key of the job names.
struct JobPath {
  std::string key, path;
};

/// What files for schedulers say about a job.
struct JobFacts {
  std::string label;             // name in lower-case letters, digits and '-', 2 to 40 characters, a letter first
  std::string file;              // absolute path of the job
  std::string text;              // content of that file
  std::vector<std::string> set;  // --set a.b=YAML
  int nodes = 1;                 // the most of launch.nnodes
  int64_t gpus = 0, ranks = 1;   // on each node
  int64_t grace_seconds = 330;   // from the request to stop until the program has ended by itself
  std::optional<int64_t> limit_seconds;  // limits.max_duration
  int64_t max_restarts = 3;
  std::vector<JobVariable> variables;
  std::vector<JobPath> paths;  // of data, weights, plug-ins and the mirror
  std::string fetched;         // model on the Hub; empty: none
  std::optional<int64_t> metrics_port;
  bool serves_others = false;  // whether other hosts may open that port
  std::string image;           // empty for formats without containers
  std::vector<Volume> volumes;
};

/// What a format can use of a request.
struct SchedulerAbilities {
  bool has_containers = false;  // needs an image, and volumes for what is kept
  bool copies_job = true;       // takes the job's file elsewhere, alone
  bool has_nodes = true;        // more than one machine
};

/// Format of a file for one scheduler.
class SchedulerFile {
 public:
  explicit SchedulerFile(const config::NoOptions&) {}
  virtual ~SchedulerFile() = default;
  virtual std::string text(const JobFacts& facts) const = 0;
};

using SchedulerCatalog = config::CatalogOfAbilities<SchedulerAbilities, SchedulerFile>;
SchedulerCatalog& schedulers();

struct SchedulerRequest {
  JobRequest job;
  std::string format;                // entry of schedulers()
  std::string image;                 // empty: none given
  std::vector<std::string> volumes;  // NAME:/path
};

/// Returns what a file says about the job. Throws Error(usage) for a job that this scheduler cannot run as it is, and
/// for an option that the format does not use.
JobFacts job_facts(const Job& job, const SchedulerRequest& request);

/// Returns the file.
std::string scheduler_file(const SchedulerRequest& request);

}  // namespace gputrain::app
