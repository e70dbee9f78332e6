// Unpacking of gzip data piece by piece, so that no code must trust the declared size.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "byte_source.hpp"

namespace gputrain::datasets {

/// The largest compression ratio of deflate.
inline constexpr int64_t kMostGzipGain = 1032;

class GzipStream {
 public:
  GzipStream(ByteSource packed, std::string name);
  ~GzipStream();

  /// Fills `to` as far as there is data and returns the number of bytes. Throws Error(data) for damaged data.
  size_t read(std::span<std::byte> to);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gputrain::datasets
