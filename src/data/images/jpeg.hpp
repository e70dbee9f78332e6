// JPEG through libjpeg-turbo.
#pragma once

#include <memory>

#include "image_state.hpp"

namespace gputrain::data {

class JpegReader {
 public:
  JpegReader();
  ~JpegReader();

  static bool recognizes(std::span<const std::byte> file);
  ImageDecoder::Size open(std::span<const std::byte> file, const std::string& name);  // size as stored, not rotated
  ImageView decode(int64_t channels, int64_t reduction, std::vector<uint8_t>& pixels);

 private:
  void renew();
  [[noreturn]] void refuse(const std::string& what);
  void decompress(int format, int64_t width, int64_t height, std::vector<uint8_t>& pixels);

  struct Free {
    void operator()(void* handle) const;
  };
  std::unique_ptr<void, Free> handle_;
  std::span<const std::byte> file_;
  std::string name_;
  ImageDecoder::Size size_;
  bool is_cmyk_ = false;
  std::vector<uint8_t> inks_;
};

}  // namespace gputrain::data
