#include "gputrain/resume/resume_preview.hpp"

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/job/job_changes.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/resume/resume_point.hpp"

namespace gputrain::app {

std::string preview_resume(const Job& job, bool accept_changes) {
  if (job.spec().checkpoint.resume == "never") return "off (checkpoint.resume: never)";
  // Tensors are not read: that takes as long as the run itself needs for it.
  const auto from = look_for_checkpoint(job, [](const checkpoint::Checkpoint&) {});
  if (!from) return "none found in " + RunFolder{job.output_dir}.checkpoints().string() + "  saves go there";
  try {
    check_job_changes(from->state().at("settings"), job, accept_changes, from->folder().string());
  } catch (const nlohmann::json::exception& failure) {
    throw Error(ExitCode::checkpoint, {.what = "the checkpoint's state cannot be read: " + reason_in(failure),
                                       .where = from->folder().string(),
                                       .hint = "resume from another one: --set checkpoint.resume=PATH"});
  }
  return "step " + grouped(from->step()) + " from " + from->folder().string() + "  its tensors are not read (dry run)";
}

}  // namespace gputrain::app
