// Threads beside the one that trains.
#pragma once

#include <functional>
#include <thread>

namespace gputrain::device {

/// Starts a thread that gets no signals. Where there is no memory for its stack, blocks that tensors no longer hold are
/// given back for it. Throws std::system_error when that does not help.
std::thread start_thread(std::function<void()> body);

}  // namespace gputrain::device
