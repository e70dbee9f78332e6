// Unpacks gzip data piece by piece, so that nobody has to believe how large the whole will be.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace gputrain::datasets {

bool is_gzip(std::span<const std::byte> content);

/// deflate cannot shrink data further than this.
inline constexpr int64_t kMostGzipGain = 1032;

class GzipStream {
 public:
  GzipStream(std::span<const std::byte> content, std::string name);
  ~GzipStream();

  /// Fills as much of `to` as there is data for; returns the number of bytes. Throws Error(data) for damaged data.
  size_t read(std::span<std::byte> to);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gputrain::datasets
