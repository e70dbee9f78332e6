// How ranks are arranged. Neighbours share the layers of the model (tensor parallelism) and are one cell of the mesh.
// Neighbouring cells share the positions of a sample (context parallelism). Around them are the shards of the
// parameters, gradients or optimizer state, which are as many as a replica has cells: cells that share a sample hold
// different shards. Outermost are the replicas, which hold the same shards; so shards stay within hosts if a host holds
// whole replicas.
#pragma once

namespace gputrain::comm {

struct Mesh {
  int ranks = 1;     // of the world
  int replicas = 1;  // each holds every shard once; divides the cells
  int context = 1;   // cells that share a sample; divides the cells of a replica
  int tensor = 1;    // ranks of a cell; divides `ranks`

  int cells() const noexcept { return ranks / tensor; }
  int shards() const noexcept { return cells() / replicas; }
  int samples() const noexcept { return cells() / context; }  // groups of ranks with samples of their own
  int tensor_place_of(int rank) const noexcept { return rank % tensor; }
  int replica_of(int rank) const noexcept { return rank / tensor / shards(); }
  int shard_of(int rank) const noexcept { return rank / tensor % shards(); }
  int sample_group_of(int rank) const noexcept { return rank / tensor / context; }
  int context_place_of(int rank) const noexcept { return rank / tensor % context; }
  /// Whether a forward pass is collective among ranks. Then all ranks take it, so that all call the same collectives.
  bool has_collective_passes() const noexcept { return context * tensor > 1; }
  /// Of the ranks that read the same samples, one counts them.
  bool counts_samples(int rank) const noexcept { return rank % (tensor * context) == 0; }
  /// Of the ranks that compute the same loss, one counts it.
  bool counts_loss(int rank) const noexcept { return tensor_place_of(rank) == 0; }
};

}  // namespace gputrain::comm
