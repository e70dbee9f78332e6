#include <algorithm>

#include <fmt/format.h>

#include "text.hpp"

namespace gputrain::app {
namespace {

constexpr const char* kBatch = R"(#!/bin/bash
# Batch script of Slurm: sbatch THIS_FILE. Job, data, weights, run folder and gputrain lie where all nodes see them.
@PAGE@
#SBATCH --job-name=@LABEL@
#SBATCH --nodes=@NODES@
#SBATCH --ntasks-per-node=1
@GPUS@
#SBATCH --output=@LABEL@-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@@GRACE@
@TIME@
# Fill in what your cluster wants, with one '#' at the beginning, and the cores of a node: Slurm gives one otherwise.
##SBATCH --partition=NAME
##SBATCH --account=NAME
##SBATCH --cpus-per-task=16

@VARIABLES@
export SRUN_CPUS_PER_TASK="${SLURM_CPUS_PER_TASK:-1}"
srun --ntasks-per-node=1 @COMMAND@ &
step=$!
# Before the end of its time the job is asked to save and to make way. A signal ends `wait`, which then waits again.
asked=yes
trap 'kill -USR1 "$step" 2>/dev/null && asked=yes' USR1
while [ "$asked" = yes ]; do
  asked=no
  wait "$step"
  code=$?
done
if [ "$code" = 138 ]; then scontrol requeue "$SLURM_JOB_ID"; fi   # saved, and asks to be started again
exit "$code"
)";

/// Returns lines that end the script at once if a variable is missing: sbatch hands over those of its own shell.
std::string needed_variables(const JobFacts& facts) {
  std::string lines;
  for (const JobVariable& variable : facts.variables)
    if (variable.is_needed) lines += fmt::format(": \"${{{}:?export it before sbatch}}\"\n", variable.name);
  return lines;
}

class BatchScript final : public SchedulerFile {
 public:
  using SchedulerFile::SchedulerFile;
  static SchedulerAbilities abilities() { return {.copies_job = false}; }

  std::string text(const JobFacts& facts) const override {
    constexpr int64_t kLongestSignal = 65535;  // Slurm's
    const std::string fetch =
        facts.fetched.empty() ? "" : comment("Once, where all nodes see it: gputrain fetch " + facts.fetched);
    const auto minutes = [](int64_t seconds) { return (seconds + 59) / 60; };
    return filled(kBatch,
                  {{"PAGE", fetch + page_note(facts)},
                   {"LABEL", facts.label},
                   {"NODES", std::to_string(facts.nodes)},
                   {"GPUS", facts.gpus > 0 ? fmt::format("#SBATCH --gpus-per-node={}", facts.gpus) : ""},
                   {"GRACE", std::to_string(std::min(facts.grace_seconds, kLongestSignal))},
                   {"TIME", facts.limit_seconds
                                ? fmt::format("# In minutes: limits.max_duration, and time to save.\n#SBATCH --time={}",
                                              minutes(*facts.limit_seconds + facts.grace_seconds))
                                : "##SBATCH --time=24:00:00"},
                   {"VARIABLES", needed_variables(facts)},
                   {"COMMAND", shell_words(launch_command(facts, facts.file))}});
  }
};

const config::Registered<BatchScript, config::NoOptions> registered_slurm{schedulers(), "slurm",
                                                                          "Slurm: a script for sbatch"};

}  // namespace
}  // namespace gputrain::app
