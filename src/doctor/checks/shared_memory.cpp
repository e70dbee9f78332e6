// /dev/shm, through which NCCL connects the GPUs of one host.
#include "gputrain/doctor/checks.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::doctor {

Findings check_shared_memory(const Machine& machine) {
  constexpr int64_t kEnough = int64_t{1} << 30;
  const bool has_ranks = machine.gpus.gpus.size() > 1;
  const bool is_container = machine.exists("/.dockerenv") || machine.exists("/run/.containerenv");
  const std::string fix = is_container ? "docker run --shm-size=8g ..." : "sudo mount -o remount,size=8G /dev/shm";
  const auto space = machine.space(machine.path("/dev/shm"));
  if (!space || space->total_bytes == 0) {
    return {{.check = "shm",
             .verdict = has_ranks ? Verdict::bad : Verdict::warn,
             .text = "there is no /dev/shm, which ranks on one host need",
             .fix = is_container ? fix : "sudo mount -t tmpfs -o size=8G tmpfs /dev/shm"}};
  }
  Finding found{
      .check = "shm",
      .text = "/dev/shm has " + monitor::bytes(space->total_bytes) + ", " + monitor::bytes(space->free_bytes) + " free",
      .facts = {{"/dev/shm", monitor::bytes(space->total_bytes)}}};
  if (space->free_bytes < kEnough) {
    found.verdict = Verdict::warn;
    found.text += ": NCCL may find too little of it with many GPUs";
    found.fix = fix;
  }
  return {found};
}

}  // namespace gputrain::doctor
