// The rank of this process among all ranks, and where they meet.
#pragma once

#include <cstdint>
#include <string>

namespace gputrain::comm {

struct Rendezvous {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;  // among the ranks on this host
  int local_world_size = 1;
  std::string master_address;  // host name or address of rank 0's host; empty when alone
  uint16_t master_port = 0;
  bool store_is_running = false;  // the launcher already serves the store at master_address:master_port
  std::string attempt;            // distinguishes restarts that share one store
  std::string job;                // "Slurm job 12 step 0", for messages; empty: unknown
};

}  // namespace gputrain::comm
