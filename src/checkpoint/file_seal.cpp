#include "gputrain/checkpoint/file_seal.hpp"

#include <new>

#include <xxhash.h>

namespace gputrain::checkpoint {

struct Sealer::State {
  State() : hash(XXH3_createState()) {
    if (hash == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(hash);
  }
  ~State() { XXH3_freeState(hash); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  XXH3_state_t* hash;
};

Sealer::Sealer() : state_(std::make_unique<State>()) {}
Sealer::~Sealer() = default;

void Sealer::add(const void* data, size_t bytes) {
  XXH3_128bits_update(state_->hash, data, bytes);
  bytes_ += bytes;
}

FileSeal Sealer::seal() const {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(state_->hash));
  constexpr const char* kDigits = "0123456789abcdef";
  FileSeal seal{.bytes = bytes_};
  for (const unsigned char byte : canonical.digest) {
    seal.xxh3_128 += kDigits[byte >> 4];
    seal.xxh3_128 += kDigits[byte & 15];
  }
  return seal;
}

}  // namespace gputrain::checkpoint
