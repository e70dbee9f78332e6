// Which process of this host listens on a port.
#pragma once

#include <cstdint>
#include <string>

namespace gputrain::comm {

/// "process 4711, gputrain run job.yaml"; empty where nobody listens, or the kernel does not say: the process is
/// another user's or another container's.
std::string port_owner(uint16_t port);

}  // namespace gputrain::comm
