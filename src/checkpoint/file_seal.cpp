#include "gputrain/checkpoint/file_seal.hpp"

#include <cerrno>
#include <cstring>
#include <vector>

#include <fcntl.h>
#include <unistd.h>
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

FileSeal seal_of(const std::filesystem::path& path, ExitCode code) {
  // Plain reads, not a mapping: a bad sector is an error here and would be a SIGBUS there.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  Sealer sealer;
  std::vector<char> buffer(size_t{1} << 20);
  ssize_t got = descriptor < 0 ? -1 : 0;
  while (descriptor >= 0) {
    got = ::read(descriptor, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    sealer.add(buffer.data(), static_cast<size_t>(got));
  }
  const int error = errno;
  if (descriptor >= 0) ::close(descriptor);
  if (got < 0) throw Error(code, {.what = std::string("cannot read: ") + std::strerror(error), .where = path.string()});
  return sealer.seal();
}

}  // namespace gputrain::checkpoint
