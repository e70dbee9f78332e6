// The process of this host that listens on a port.
#pragma once

#include <cstdint>
#include <string>

namespace gputrain::comm {

/// Returns "process 4711, gputrain run job.yaml"; empty if nobody listens, or if the process belongs to another user or
/// container and the kernel does not show it.
std::string port_owner(uint16_t port);

}  // namespace gputrain::comm
