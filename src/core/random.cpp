#include "gputrain/core/random.hpp"

namespace gputrain {

uint64_t mix(uint64_t a, uint64_t b) noexcept {
  uint64_t z = a + 0x9E3779B97F4A7C15ULL * (b + 1);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
  return z ^ (z >> 31);
}

uint64_t stable_hash(std::string_view text) noexcept {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3ULL;
  return mix(hash, text.size());
}

uint32_t RandomStream::bits() noexcept {
  if (left_ == 0) {
    ready_ = philox(seed_, block_++, stream_);
    left_ = 4;
  }
  return ready_[static_cast<size_t>(4 - left_--)];
}

double RandomStream::uniform() noexcept {
  const uint64_t high = bits(), low = bits();
  return static_cast<double>(((high << 32) | low) >> 11) * 0x1.0p-53;
}

int64_t RandomStream::below(int64_t bound) noexcept {
  const auto range = static_cast<uint64_t>(bound);
  const uint64_t limit = UINT64_MAX - UINT64_MAX % range;  // a multiple of range: smaller draws are unbiased
  uint64_t draw = 0;
  do {
    const uint64_t high = bits();
    draw = (high << 32) | bits();
  } while (draw >= limit);
  return static_cast<int64_t>(draw % range);
}

}  // namespace gputrain
