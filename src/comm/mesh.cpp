#include "gputrain/comm/mesh.hpp"

namespace gputrain::comm {

std::string Mesh::place_text(int rank) const {
  std::string text;
  const auto add = [&](const char* what, int degree, int place) {
    if (degree > 1) text += (text.empty() ? "" : ", ") + std::string(what) + " " + std::to_string(place);
  };
  if (replicas == 1 && !has_collective_passes()) return text;
  add("stage", pipeline, stage_of(rank));
  add("replica", replicas, replica_of(rank));
  add("shard", shards(), shard_of(rank));
  add("context", context, context_place_of(rank));
  add("tensor", tensor, tensor_place_of(rank));
  return text;
}

}  // namespace gputrain::comm
