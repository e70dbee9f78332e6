// Size and hash of a file: a reader uses them to detect damage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace gputrain::checkpoint {

struct FileSeal {
  uint64_t bytes = 0;
  std::string xxh3_128;  // 128-bit XXH3 as 32 hexadecimal digits, as `xxh128sum` prints it

  friend bool operator==(const FileSeal&, const FileSeal&) = default;
};

/// Computes the seal of a stream of bytes incrementally.
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
