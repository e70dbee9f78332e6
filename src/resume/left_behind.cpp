#include "gputrain/resume/left_behind.hpp"

#include "gputrain/checkpoint/listing.hpp"
#include "gputrain/checkpoint/setting_aside.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/job/run_lock.hpp"

namespace gputrain::app {

void leave_newer(const std::filesystem::path& checkpoints, int64_t step) {
  for (const auto& [from, to] : checkpoint::set_aside_newer(checkpoints, step))
    log::warning(from.string() + " is left behind; it is now " + to.filename().string());
}

void leave_newer_in_mirror(const std::filesystem::path& mirror, int64_t step) {
  try {
    leave_newer(mirror, step);
  } catch (const Error& failure) {
    throw Error(ExitCode::checkpoint,
                {.what = "what is left behind in the mirror cannot be set aside: " + failure.parts().what,
                 .where = failure.parts().where,
                 .hint = "mend that, or go on without it: --set checkpoint.mirror=null"});
  }
}

void leave_others(const std::filesystem::path& checkpoints, const checkpoint::Lineage& lineage) {
  try {
    for (const auto& [from, to] : checkpoint::set_aside_others(checkpoints, lineage))
      log::warning(from.string() + " is of what this run has left behind; it is now " + to.filename().string());
  } catch (const Error& failure) {
    log::warning(std::string("checkpoints that this run has left behind stay: ") + failure.what());
  }
}

void leave_mirror(const std::filesystem::path& mirror) {
  if (checkpoint::list_checkpoints(mirror).empty()) return;
  RunLock lock;
  try {
    lock = RunLock(mirror);
  } catch (const Error& failure) {
    if (failure.code() == ExitCode::usage) throw;  // that of a run under way; else what follows tells
  }
  leave_newer_in_mirror(mirror, -1);
}

}  // namespace gputrain::app
