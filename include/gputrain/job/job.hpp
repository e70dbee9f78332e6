// Loaded job: spec, name, identity and run folder.
#pragma once

#include <filesystem>
#include <string>

#include "gputrain/config/load.hpp"
#include "gputrain/job/job_request.hpp"
#include "gputrain/job/job_spec.hpp"

namespace gputrain::app {

struct Job {
  config::Loaded loaded;
  std::string name;
  std::string run_id;     // name + hash of the settings that change results
  std::string spec_hash;  // six hex digits of that hash
  std::filesystem::path output_dir;

  const JobSpec& spec() const { return loaded.as<JobSpec>(); }
};

const config::Schema& job_schema();

/// Reads and checks the job. Throws config::SpecError with all problems.
Job load_job(const JobRequest& request);

/// Loads the job of weights that are used and not trained: precision may differ from that of training.
Job load_job_of_weights(JobRequest request);

}  // namespace gputrain::app
