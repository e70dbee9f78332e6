// Unpacking of Zstandard data piece by piece, so that no code must trust the declared size.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "byte_source.hpp"

namespace gputrain::datasets {

class ZstdStream {
 public:
  ZstdStream(ByteSource packed, std::string name);
  ~ZstdStream();

  /// Fills `to` as far as there is data and returns the number of bytes. Throws Error(data) for damaged data.
  size_t read(std::span<std::byte> to);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gputrain::datasets
