// Order of an epoch's samples, computed, not stored; and the position of training in it.
#pragma once

#include <array>
#include <cstdint>

namespace gputrain::data {

/// A permutation of [0, n), the same on every machine: an alternating Feistel network over the smallest power of two
/// that holds n, applied again until the value is below n (cycle walking; Black and Rogaway, "Ciphers with arbitrary
/// finite domains", 2002). Fewer than two evaluations of the network per position on average.
class Permutation {
 public:
  Permutation(uint64_t seed, int64_t epoch, int64_t n) noexcept;  // needs n >= 1

  int64_t operator()(int64_t position) const noexcept;  // needs 0 <= position < n

 private:
  static constexpr int kRounds = 8;

  uint64_t walk_once(uint64_t value) const noexcept;

  uint64_t n_;
  int low_bits_;
  uint64_t low_mask_, high_mask_;
  std::array<uint64_t, kRounds> keys_;
};

/// Position of training in its data, whatever the size of its steps.
struct Position {
  int64_t epoch = 0;
  int64_t samples = 0;  // samples of this epoch used so far

  friend bool operator==(const Position&, const Position&) = default;
};

/// Returns the order in which a loader with this seed reads an epoch of n samples.
Permutation order_of_epoch(uint64_t loader_seed, int64_t epoch, int64_t n) noexcept;

/// Samples of an epoch by their positions. With `repeats` above 1 an epoch of n positions has n / repeats samples, each
/// so often in a row (Hoffer et al., arXiv:1901.09335, "augment your batch").
class SampleOrder {
 public:
  SampleOrder(uint64_t loader_seed, int64_t epoch, int64_t n, bool shuffle, int64_t repeats) noexcept
      : permutation_(order_of_epoch(loader_seed, epoch, n)), shuffle_(shuffle), repeats_(repeats) {}

  int64_t operator()(int64_t position) const noexcept {
    const int64_t place = position / repeats_;
    return shuffle_ ? permutation_(place) : place;
  }
  /// Returns which of its copies is at a position, from 0 on.
  int64_t copy(int64_t position) const noexcept { return position % repeats_; }

 private:
  Permutation permutation_;
  bool shuffle_;
  int64_t repeats_;
};

/// Returns the sample at `position` of an epoch of n samples, for a permutation with this seed.
int64_t permute(uint64_t seed, int64_t epoch, int64_t n, int64_t position) noexcept;

}  // namespace gputrain::data
