// Examines several hosts through ssh, as `gputrain launch` reaches them, and what is between them.
#pragma once

#include <string>
#include <vector>

#include "gputrain/doctor/best_rates.hpp"
#include "gputrain/doctor/comparison.hpp"
#include "gputrain/launch/hosts.hpp"

namespace gputrain::doctor {

struct ExaminedHosts {
  std::vector<HostReport> reports;  // in the order of the hosts
  Findings between;                 // clocks, ports that are closed, folders apart, slow disks, differences
};

struct ExamineRequest {
  std::vector<launch::Host> hosts;
  std::vector<std::string> arguments;  // arguments of `gputrain` on every host; it must serve() there
  std::string folder;                  // its disk is measured, unless a job says where it writes
  bool measures = false;               // also how fast processors, GPUs, memory, disks and the network are
  std::string device = "auto";
  double least_percent = 80;
};

/// Call from the main thread.
ExaminedHosts examine(const ExamineRequest& request, const BestRates& best);

/// The other side: prints `report`, one line, and answers questions from stdin until it ends.
///   time                           seconds since 1970
///   listen ADDRESS                 the number of a port
///   reach ADDRESS PORT             "ok", or why not
///   disk FOLDER                    bytes per second of writing there
///   take ADDRESS                   the number of a port that takes bytes
///   send ADDRESS PORT              sends some; bytes per second
///   mark FOLDER                    the place of a file in the folder, or above it, that is there until the end
///   see PLACE FOLDER               "ok" if a mark is seen there from the folder
///   bench DEVICE PERCENT FOLDER    MachineRates as JSON; what is below PERCENT of the best known is measured again
/// Whatever cannot be done is answered by a sentence.
void serve(const std::string& report, const BestRates& best);

}  // namespace gputrain::doctor
