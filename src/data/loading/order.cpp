#include "gputrain/data/order.hpp"

#include <algorithm>
#include <bit>

#include "gputrain/core/random.hpp"

namespace gputrain::data {

// Bits of the smallest network: one over fewer values reaches only some permutations; six bits reach all.
constexpr int kFewestBits = 6;

Permutation::Permutation(uint64_t seed, int64_t epoch, int64_t n) noexcept : n_(static_cast<uint64_t>(n)) {
  const int bits = std::max(kFewestBits, static_cast<int>(std::bit_width(n_ - 1)));
  low_bits_ = bits / 2;
  low_mask_ = (uint64_t{1} << low_bits_) - 1;
  high_mask_ = (uint64_t{1} << (bits - low_bits_)) - 1;
  const uint64_t epoch_key = mix(seed, static_cast<uint64_t>(epoch));
  for (size_t round = 0; round < kRounds; ++round) keys_[round] = mix(epoch_key, round);
}

uint64_t Permutation::walk_once(uint64_t value) const noexcept {
  uint64_t low = value & low_mask_, high = value >> low_bits_;
  for (size_t round = 0; round < kRounds; round += 2) {
    high ^= mix(keys_[round], low) & high_mask_;
    low ^= mix(keys_[round + 1], high) & low_mask_;
  }
  return high << low_bits_ | low;
}

int64_t Permutation::operator()(int64_t position) const noexcept {
  uint64_t value = static_cast<uint64_t>(position);
  do {
    value = walk_once(value);
  } while (value >= n_);
  return static_cast<int64_t>(value);
}

int64_t permute(uint64_t seed, int64_t epoch, int64_t n, int64_t position) noexcept {
  return Permutation(seed, epoch, n)(position);
}

// Uses a stream of its own: order and augmentation must not share random numbers.
Permutation order_of_epoch(uint64_t loader_seed, int64_t epoch, int64_t n) noexcept {
  constexpr uint64_t kOrderStream = 1;
  return {mix(loader_seed, kOrderStream), epoch, n};
}

}  // namespace gputrain::data
