// Waits for the store of rank 0, without which the ranks cannot meet.
//
// c10d's own client waits in silence, and for ever if a service takes the connection and says nothing.
#pragma once

#include <string>

#include "gputrain/comm/process_groups.hpp"
#include "gputrain/comm/rendezvous.hpp"

namespace gputrain::comm {

/// Returns the numeric address of the store. Tells on_waiting if its name takes long to resolve. Throws as
/// rendezvous_address().
std::string await_address(const Rendezvous& at, const GroupOptions& options);

/// Returns when a store answers at `address`. From `patience` on tells on_waiting, once a minute, what it waits for.
/// Throws Error(environment) if another service answers there, Error(restart) after start_deadline.
void await_store(const Rendezvous& at, const std::string& address, const GroupOptions& options);

}  // namespace gputrain::comm
