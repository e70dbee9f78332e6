// Facts about this process.
#pragma once

namespace gputrain {

/// Wall-clock seconds since the kernel started this process (program loading included), to about 10 ms. A script that
/// ends in `exec gputrain` is the same process: its time counts too.
double seconds_since_process_start();

}  // namespace gputrain
