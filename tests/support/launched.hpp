// Shared by the tests of `gputrain launch`: a launcher with two ranks, and its processes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "support/process_family.hpp"
#include "support/program.hpp"
#include "support/small_job.hpp"

namespace gputrain::testing_support {

using Words = std::vector<std::string>;

inline Words operator+(Words a, const Words& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

/// Two ranks on this machine under the launcher, with all their processes and files.
class Launched {
 public:
  Launched(const TemporaryFolder& folder, const Words& options, const Words& settings, const std::string& job_text = "")
      : run_(folder / "run") {
    const std::string job = write_gpt_job(folder, "log: {interval: 1}\n" + job_text);
    Words command{gputrain_path(), "launch", "--nproc-per-node", "2"};
    command = command + options + Words{"run", job, "--output-dir", run_};
    for (const auto& setting : settings) command = command + Words{"--set", setting};
    auto environment = family_.environment();
    environment["LD_PRELOAD"] = EXIT_ON_SIGNAL;
    for (const char* of : {"ASAN_OPTIONS", "TSAN_OPTIONS"}) environment[of] = "handle_segv=0";  // let SIGSEGV kill
    program_.emplace(command, environment);
  }

  Program& program() { return *program_; }
  ProcessFamily& family() { return family_; }
  const std::string& run() const { return run_; }

 private:
  std::string run_;
  ProcessFamily family_;  // outlives the program and kills its leftover processes
  std::optional<Program> program_;
};

inline const Words kEndless{"train.max_steps=1000000", "eval.interval=null", "checkpoint.interval=null"};

}  // namespace gputrain::testing_support
