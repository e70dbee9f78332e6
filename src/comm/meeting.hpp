// How ranks find each other: a store in rank 0 (or in the launcher), where each writes who it is and waits for the
// rest.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/comm/rendezvous.hpp"

namespace gputrain::comm {

/// Serves the store (rank 0, unless the launcher does) or connects to it.
c10::intrusive_ptr<c10d::Store> open_store(const Rendezvous& at, const std::string& address,
                                           std::chrono::milliseconds deadline);

/// Writes this rank down, waits for all, and checks that they are of one job and agree on the world size and the kind
/// of device. Returns the host name of each rank.
std::vector<std::string> meet(c10d::Store& store, const Rendezvous& at, const GroupOptions& options);

/// Says that this rank has read what it wanted to know of the others; on rank 0, which serves the store, waits until
/// all have, a few seconds at most: so that all of them come to the same conclusion. `round`: a name for it.
void note_read(c10d::Store& store, const Rendezvous& at, const std::string& round);

}  // namespace gputrain::comm
