// How ranks find each other: a store in rank 0 (or in the launcher), where each rank writes who it is and waits for the
// others.
#pragma once

#include <string>
#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/comm/rendezvous.hpp"

namespace gputrain::comm {

/// Returns the name of this machine, by which ranks name it to each other; "unknown" if it has none.
std::string host_name();

/// Serves the store (rank 0, unless the launcher does) or connects to it. Throws Error(restart) if that fails,
/// Error(environment) if the port is taken or another service answers there.
c10::intrusive_ptr<c10d::Store> open_store(const Rendezvous& at, const std::string& address,
                                           const GroupOptions& options);

/// Writes this rank's entry, waits for all ranks, and checks that they belong to one job and agree on the world size
/// and the kind of device. Returns the host name of each rank.
std::vector<std::string> store_rendezvous(c10d::Store& store, const Rendezvous& at, const GroupOptions& options);

/// Notes that this rank has read the others' entries. Rank 0, which serves the store, waits a few seconds until all
/// ranks have, so that all come to the same conclusion. `round`: a name for this exchange.
void note_read(c10d::Store& store, const Rendezvous& at, const std::string& round);

}  // namespace gputrain::comm
