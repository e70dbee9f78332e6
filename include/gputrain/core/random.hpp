// Counter-based random numbers: the n-th number of a stream is a pure function of (seed, stream, n).
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace gputrain {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC'11). Always inline, so that the
/// compiler vectorizes a caller's loop over counters with the caller's instruction set.
[[gnu::always_inline]] inline std::array<uint32_t, 4> philox(uint64_t key, uint64_t counter_low,
                                                             uint64_t counter_high) noexcept {
  constexpr uint32_t kMultiply0 = 0xD2511F53, kMultiply1 = 0xCD9E8D57;
  constexpr uint32_t kWeyl0 = 0x9E3779B9, kWeyl1 = 0xBB67AE85;
  auto key0 = static_cast<uint32_t>(key), key1 = static_cast<uint32_t>(key >> 32);
  std::array<uint32_t, 4> c{static_cast<uint32_t>(counter_low), static_cast<uint32_t>(counter_low >> 32),
                            static_cast<uint32_t>(counter_high), static_cast<uint32_t>(counter_high >> 32)};
  for (int round = 0; round < 10; ++round) {
    const uint64_t product0 = uint64_t{kMultiply0} * c[0], product1 = uint64_t{kMultiply1} * c[2];
    c = {static_cast<uint32_t>(product1 >> 32) ^ c[1] ^ key0, static_cast<uint32_t>(product1),
         static_cast<uint32_t>(product0 >> 32) ^ c[3] ^ key1, static_cast<uint32_t>(product0)};
    key0 += kWeyl0;
    key1 += kWeyl1;
  }
  return c;
}

/// Returns a 64-bit hash of a name, the same on all machines and in all versions (FNV-1a, then a finaliser).
uint64_t stable_hash(std::string_view text) noexcept;

/// Mixes two 64-bit values into one (SplitMix64 finaliser).
uint64_t mix(uint64_t a, uint64_t b) noexcept;

/// A sequential generator over one Philox stream, for code that draws a varying number of values.
class RandomStream {
 public:
  RandomStream(uint64_t seed, uint64_t stream) noexcept : seed_(seed), stream_(stream) {}

  uint32_t bits() noexcept;   // 32 uniform bits
  double uniform() noexcept;  // [0, 1), 53 bits
  double uniform(double low, double high) noexcept { return low + (high - low) * uniform(); }
  int64_t below(int64_t bound) noexcept;  // [0, bound), unbiased; bound > 0

 private:
  uint64_t seed_;
  uint64_t stream_;
  uint64_t block_ = 0;
  std::array<uint32_t, 4> ready_{};
  int left_ = 0;
};

}  // namespace gputrain
