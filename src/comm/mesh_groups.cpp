#include "mesh_groups.hpp"

#include <utility>

namespace gputrain::comm {
namespace {

using Use = MeshGroup::Use;

std::string text_of(int number) { return std::to_string(number); }

/// Links between neighbouring stages, all ranks in the same order of links.
void add_links(const Mesh& mesh, int rank, const std::string& at_place, std::vector<MeshGroup>& groups) {
  const int stage = mesh.stage_of(rank);
  const int links = mesh.virtual_stages > 1 ? mesh.pipeline : mesh.pipeline - 1;
  for (int from = 0; from < links; ++from) {
    const int to = (from + 1) % mesh.pipeline;
    if (stage != from && stage != to) continue;
    const bool is_first = stage == from;
    const std::string forward = " from stage " + text_of(from) + " to " + text_of(to);
    const std::string backward = " from stage " + text_of(to) + " to " + text_of(from);
    groups.push_back({.use = is_first ? Use::activations_to_next : Use::activations_from_previous,
                      .name = "activations" + forward + at_place,
                      .among = forward,
                      .rank = is_first ? 0 : 1,
                      .size = 2});
    groups.push_back({.use = is_first ? Use::gradients_from_next : Use::gradients_to_previous,
                      .name = "gradients" + backward + at_place,
                      .among = backward,
                      .rank = is_first ? 0 : 1,
                      .size = 2});
  }
}

}  // namespace

std::vector<MeshGroup> groups_of(const Mesh& mesh, int rank) {
  const int shard = mesh.shard_of(rank), replica = mesh.replica_of(rank), place = mesh.tensor_place_of(rank);
  const int stage = mesh.stage_of(rank);
  const std::string in_stage = mesh.pipeline > 1 ? " in stage " + text_of(stage) : "";
  const std::string here = (mesh.tensor > 1 ? " at place " + text_of(place) : "") + in_stage;
  const std::string at_place = " at place " + text_of(mesh.place_in_stage_of(rank));
  std::vector<MeshGroup> groups;
  if (mesh.replicas > 1 || mesh.has_parts_of_model()) {
    groups.push_back({.use = Use::shards,
                      .name = "shards of replica " + text_of(replica) + here,
                      .among = " among shards",
                      .rank = shard,
                      .size = mesh.shards()});
    groups.push_back({.use = Use::replicas,
                      .name = "replicas of shard " + text_of(shard) + here,
                      .among = " across replicas",
                      .rank = replica,
                      .size = mesh.replicas});
  }
  groups.push_back({.use = Use::context,
                    .name = "texts of group " + text_of(mesh.sample_group_of(rank)) + here,
                    .among = " of shared texts",
                    .rank = mesh.context_place_of(rank),
                    .size = mesh.context});
  groups.push_back({.use = Use::layers,
                    .name = "layers of cell " + text_of(rank / mesh.tensor),
                    .among = " of shared layers",
                    .rank = place,
                    .size = mesh.tensor});
  groups.push_back({.use = Use::stages,
                    .name = "stages" + at_place,
                    .among = " among stages",
                    .rank = stage,
                    .size = mesh.pipeline});
  const bool is_last = stage + 1 == mesh.pipeline;
  if (mesh.pipeline > 1 && (stage == 0 || is_last)) {
    groups.push_back({.use = Use::ends,
                      .name = "ends" + at_place,
                      .among = " between the first and the last stage",
                      .rank = is_last ? 1 : 0,
                      .size = 2});
  }
  if (mesh.pipeline > 1) add_links(mesh, rank, at_place, groups);
  std::erase_if(groups, [](const MeshGroup& group) { return group.size == 1; });
  return groups;
}

}  // namespace gputrain::comm
