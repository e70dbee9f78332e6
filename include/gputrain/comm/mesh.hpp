// How ranks are arranged. Neighbours share the layers of the model (tensor parallelism) and are one cell of the mesh.
// Neighbouring cells share the positions of a sample (context parallelism). Around them are the shards of the
// parameters, gradients or optimizer state, which are as many as a replica has cells: cells that share a sample hold
// different shards. Around those are the replicas, which hold the same shards; so shards stay within hosts if a host
// holds whole replicas. Outermost are the stages of a pipeline, each with other units of the model: they talk least.
#pragma once

#include <string>

namespace gputrain::comm {

struct Mesh {
  int ranks = 1;           // ranks of the world
  int replicas = 1;        // replicas of a stage; each holds every shard once; divides the cells
  int context = 1;         // cells that share a sample; divides the cells of a replica
  int tensor = 1;          // ranks of a cell; divides the ranks of a stage
  int pipeline = 1;        // stages; divides `ranks`
  int virtual_stages = 1;  // parts of the model that each stage has (interleaved pipelines); 1 without a pipeline

  int stage_ranks() const noexcept { return ranks / pipeline; }
  int cells() const noexcept { return stage_ranks() / tensor; }  // cells of a stage
  int shards() const noexcept { return cells() / replicas; }
  int samples() const noexcept { return cells() / context; }  // groups of ranks with samples of their own
  int stage_of(int rank) const noexcept { return rank / stage_ranks(); }
  int place_in_stage_of(int rank) const noexcept { return rank % stage_ranks(); }
  int tensor_place_of(int rank) const noexcept { return rank % tensor; }
  int replica_of(int rank) const noexcept { return cell_of(rank) / shards(); }
  int shard_of(int rank) const noexcept { return cell_of(rank) % shards(); }
  int sample_group_of(int rank) const noexcept { return cell_of(rank) / context; }
  int context_place_of(int rank) const noexcept { return cell_of(rank) % context; }
  /// Returns the first rank with the same part of the model: of its layers, and of its units.
  int first_like(int rank) const noexcept { return stage_of(rank) * stage_ranks() + tensor_place_of(rank); }
  bool has_parts_of_model() const noexcept { return tensor * pipeline > 1; }
  /// Returns whether a forward pass is collective among ranks. Then all ranks take it, so that all call the same
  /// collectives.
  bool has_collective_passes() const noexcept { return context * tensor * pipeline > 1; }
  /// Returns whether this rank counts its samples: one does among those that read the same samples.
  bool counts_samples(int rank) const noexcept { return rank < stage_ranks() && rank % (tensor * context) == 0; }
  /// Returns whether this rank counts its loss: one does among those that compute the same loss, which only the last
  /// stage has.
  bool counts_loss(int rank) const noexcept { return stage_of(rank) == pipeline - 1 && tensor_place_of(rank) == 0; }
  /// Returns "stage 1, shard 0, tensor 1": along the axes that there are; empty: ranks differ in their data alone.
  std::string place_text(int rank) const;

 private:
  int cell_of(int rank) const noexcept { return place_in_stage_of(rank) / tensor; }
};

}  // namespace gputrain::comm
