// Findings that need several hosts: clocks, ports, the network's speed.
#pragma once

#include <memory>
#include <vector>

#include "gputrain/doctor/comparison.hpp"
#include "gputrain/launch/remote_program.hpp"

namespace gputrain::doctor {

using Serving = std::vector<std::unique_ptr<launch::RemoteProgram>>;  // hosts that serve(), in the order of the reports

/// Returns the answer; nothing if none comes in time.
std::optional<std::string> ask(launch::RemoteProgram& host, const std::string& question,
                               std::chrono::seconds patience = std::chrono::seconds(10));
/// Returns a whole answer that is a number.
std::optional<double> number_of(const std::optional<std::string>& answer);

Findings compare_clocks(const Serving& hosts, const std::vector<HostReport>& reports);

/// Returns whether every host can open connections to every other one; of many hosts, to the first one and to the next.
Findings closed_ways(const Serving& hosts, const std::vector<HostReport>& reports);

/// Returns whether every host sees the run folder of the first one.
Findings folders_apart(const Serving& hosts, const std::vector<HostReport>& reports);

/// Measures how fast each host writes, all at the same time; those that are slow, once more alone.
void measure_disks(const Serving& hosts, std::vector<HostReport>& reports, const std::string& folder);

/// Adds to each host's rates what it sends to and gets from its neighbours in the list, over one connection at a time:
/// of each direction the faster one, and of the two directions the slower one.
void measure_network(const Serving& hosts, std::vector<HostReport>& reports);

}  // namespace gputrain::doctor
