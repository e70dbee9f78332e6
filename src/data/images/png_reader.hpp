// Reader of PNG through libpng's simplified interface.
#pragma once

#include "image_state.hpp"

namespace gputrain::data {

class PngReader {
 public:
  static bool recognizes(std::span<const std::byte> file);
  static std::span<const std::byte> exif(std::span<const std::byte> file);  // returns nothing if it has none
  ImageDecoder::Size open(std::span<const std::byte> file, const std::string& name);
  ImageView decode(int64_t channels, std::vector<uint8_t>& pixels);
  ImageView decode_numbers(std::vector<uint8_t>& pixels);

 private:
  /// Decodes the grey values of colours that are all grey.
  ImageView decode_grey_colours(std::vector<uint8_t>& pixels);

  std::span<const std::byte> file_;
  std::string name_;
};

}  // namespace gputrain::data
