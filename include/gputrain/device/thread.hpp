// Starts threads beside the training thread.
#pragma once

#include <functional>
#include <thread>

namespace gputrain::device {

/// Starts a thread that gets no signals, with a name of at most 15 letters that `top -H` shows. If there is no memory
/// for its stack, frees kept blocks of the host allocator and tries again. Throws std::system_error if that fails too.
std::thread start_thread(const char* name, std::function<void()> body);

}  // namespace gputrain::device
