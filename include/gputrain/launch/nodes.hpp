// One launcher on each node, started there by somebody else's scheduler: which node this is, of how many, and where
// they meet.
//
// Read from torchrun's variables (PET_*, which Kubeflow's trainers set, or a person), SkyPilot's, dstack's, and Slurm's
// where srun has started one task per node. Several may be set: they complete each other and must not contradict each
// other. MASTER_ADDR and MASTER_PORT decide where PET_MASTER_* are not set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/launch/environment.hpp"

namespace gputrain::launch {

struct NodePlace {
  std::string scheduler;  // "SkyPilot"
  int node = 0, nodes = 1;
  std::optional<int> ranks;  // on this node; empty: as many as it has GPUs
  std::string address;       // of node 0; empty when there is no other
  uint16_t port = 0;
  std::string job;  // "Slurm job 12 step 0", for messages; empty: not known
};

/// None of the variables set: empty. Throws Error(usage), showing the values, when they are half-set, not numbers, out
/// of range, or contradict each other.
std::optional<NodePlace> read_node(const Lookup& lookup);
std::optional<NodePlace> read_node();  // of this process

/// The nodes that Slurm has given to the batch script or the shell of salloc in which this process is the only one;
/// empty elsewhere. Throws Error(usage) for a list that is none.
std::vector<std::string> allocated_nodes(const Lookup& lookup);
std::vector<std::string> allocated_nodes();  // to this process

}  // namespace gputrain::launch
