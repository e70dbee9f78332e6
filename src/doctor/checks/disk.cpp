// The disk: space and speed for the checkpoints that a job plans, or the space in the current folder.
#include "gputrain/doctor/checks.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::doctor {
namespace {

Finding check_planned(const PlannedCheckpoints& planned, const std::optional<Space>& space) {
  constexpr double kSlow = 100e6, kLong = 300;
  Finding found{.check = "disk",
                .text = "one checkpoint is " + monitor::bytes(planned.bytes) + " in " + planned.folder};
  if (space) found.text += ", " + monitor::bytes(space->free_bytes) + " free";
  const double speed = planned.write_bytes_per_second;
  if (speed > 0) {
    const double seconds = static_cast<double>(planned.bytes) / speed;
    found.text += "; writes " + monitor::bytes(speed) + "/s, a checkpoint in " + monitor::duration(seconds);
    if ((speed < kSlow && seconds > 1) || seconds > kLong) {
      found.verdict = Verdict::warn;
      found.text += ": slow";
      found.fix = "another --output-dir, on a local disk, with checkpoint.mirror for a copy";
    }
  }
  for (const std::string& shortage : planned.shortages) {
    found.verdict = planned.none_fits ? Verdict::bad : Verdict::warn;
    found.text += "; " + shortage;
    found.fix = "free space there, keep fewer (checkpoint.keep_last), or another --output-dir";
  }
  return found;
}

}  // namespace

Findings check_disk(const Machine& machine) {
  constexpr int64_t kLittle = int64_t{1} << 30;
  if (machine.planned) return {check_planned(*machine.planned, machine.space(machine.planned->folder))};
  const auto space = machine.space(".");
  if (!space) return {};
  Finding found{.check = "disk", .text = monitor::bytes(space->free_bytes) + " free in the current folder"};
  if (space->free_bytes < kLittle) {
    found.verdict = Verdict::warn;
    found.text += ": hardly enough for checkpoints";
    found.fix = "df -h; `gputrain doctor JOB` compares with what a job saves";
  }
  return {found};
}

}  // namespace gputrain::doctor
