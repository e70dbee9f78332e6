// Reader of JPEG through libjpeg.
#pragma once

#include <memory>

#include "image_state.hpp"

namespace gputrain::data {

class JpegReader {
 public:
  JpegReader();
  ~JpegReader();

  static bool recognizes(std::span<const std::byte> file);
  static std::span<const std::byte> exif(std::span<const std::byte> file);            // returns nothing if it has none
  ImageDecoder::Size open(std::span<const std::byte> file, const std::string& name);  // as stored, not rotated
  ImageView decode(int64_t channels, int64_t reduction, std::vector<uint8_t>& pixels);

 private:
  struct State;

  /// Runs calls of libjpeg. An error of libjpeg or of a progress monitor becomes an Error that begins with `failure`.
  /// It leaves the calls by longjmp(), so they own nothing.
  template <class Calls>
  void run(const char* failure, const Calls& calls);

  std::unique_ptr<State> state_;
  std::string name_;
  std::vector<uint8_t> inks_;  // one row
};

}  // namespace gputrain::data
