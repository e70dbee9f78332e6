// One launcher per node, each started by an external scheduler: which node this is, of how many, and where they meet.
//
// Read from torchrun's variables (PET_*, set by Kubeflow's trainers or by hand), SkyPilot's, dstack's, and Slurm's if
// srun has started one task per node. If several are set, they complete each other and must agree. MASTER_ADDR and
// MASTER_PORT decide if PET_MASTER_* are not set.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/launch/environment.hpp"

namespace gputrain::launch {

struct NodeContext {
  std::string scheduler;  // "SkyPilot"
  int node = 0, nodes = 1;
  std::optional<int> ranks;  // on this node; empty: one per GPU
  std::string address;       // of node 0; empty with a single node
  uint16_t port = 0;
  std::string job;  // "Slurm job 12 step 0", for messages; empty: unknown
};

/// Reads the node's variables; empty without any. Throws Error(usage), showing the values, when they are incomplete,
/// not numbers, out of range, or contradict each other.
std::optional<NodeContext> read_node(const Lookup& lookup);
std::optional<NodeContext> read_node();  // of this process

/// Returns the nodes that Slurm allocated, if this process runs alone in the batch script or the shell of salloc; empty
/// elsewhere. Throws Error(usage) for a malformed list.
std::vector<std::string> allocated_nodes(const Lookup& lookup);
std::vector<std::string> allocated_nodes();  // to this process

}  // namespace gputrain::launch
