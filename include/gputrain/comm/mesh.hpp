// How ranks are arranged. Neighbours share the positions of a sample (context parallelism). Around them are the shards
// of the parameters, gradients or optimizer state, which are as many as a replica has ranks: ranks that share a sample
// hold different shards. Outermost are the replicas, which hold the same shards; so shards stay within hosts if a host
// holds whole replicas.
#pragma once

namespace gputrain::comm {

struct Mesh {
  int ranks = 1;     // of the world
  int replicas = 1;  // each holds every shard once; divides `ranks`
  int context = 1;   // ranks that share a sample; divides the ranks of a replica

  int shards() const noexcept { return ranks / replicas; }
  int samples() const noexcept { return ranks / context; }  // groups of ranks with samples of their own
  int replica_of(int rank) const noexcept { return rank / shards(); }
  int shard_of(int rank) const noexcept { return rank % shards(); }
  int sample_group_of(int rank) const noexcept { return rank / context; }
  int context_place_of(int rank) const noexcept { return rank % context; }
};

}  // namespace gputrain::comm
