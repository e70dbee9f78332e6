// The groups that a mesh has, by rank.
#pragma once

#include <string>
#include <vector>

#include "gputrain/comm/mesh.hpp"

namespace gputrain::comm {

/// A group of some ranks of a mesh, as one of them sees it.
struct MeshGroup {
  enum class Use {
    shards,
    replicas,
    context,
    layers,
    stages,
    ends,
    activations_to_next,
    activations_from_previous,
    gradients_from_next,
    gradients_to_previous
  };
  Use use = Use::shards;
  std::string name;        // the same on its ranks alone
  std::string among = {};  // " among shards": which ranks, in names of collectives
  int rank = 0, size = 1;
};

/// Returns a rank's groups of more than one rank. Ranks that connect them in this order do not wait in a circle.
std::vector<MeshGroup> groups_of(const Mesh& mesh, int rank);

}  // namespace gputrain::comm
