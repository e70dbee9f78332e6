// The size and the hash of a file: how a reader knows that it still is what was written.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace gputrain::checkpoint {

struct FileSeal {
  uint64_t bytes = 0;
  std::string xxh3_128;  // XXH3, 128 bits, as 32 hexadecimal digits (what `xxh128sum` prints)

  friend bool operator==(const FileSeal&, const FileSeal&) = default;
};

/// Seals a stream of bytes piece by piece.
class Sealer {
 public:
  Sealer();
  ~Sealer();
  void add(const void* data, size_t bytes);
  FileSeal seal() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
  uint64_t bytes_ = 0;
};

}  // namespace gputrain::checkpoint
