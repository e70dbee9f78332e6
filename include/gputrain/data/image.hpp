// Decoding of JPEG and PNG into bytes, and fitting of images to the model's input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace gputrain::data {

/// Pixels in memory, row by row without gaps: [height, width, channels].
struct ImageView {
  const uint8_t* pixels = nullptr;
  int64_t width = 0, height = 0, channels = 0;
};

/// Where an output of `width` x `height` pixels takes its values: the source's box [left, right) x [top, bottom) is
/// resized to full_width x full_height, and the output shows that from (x, y) on, black outside. Flipped last.
struct Fit {
  int64_t left = 0, top = 0, right = 0, bottom = 0;
  int64_t full_width = 0, full_height = 0;
  int64_t x = 0, y = 0;
  int64_t width = 0, height = 0;
  bool flip = false;
};

/// Bilinear with antialiasing, as Pillow and torchvision do it (a triangle filter as wide as the reduction). `to` takes
/// [height, width, channels]. `reduction`: how much smaller than the fit's source the given image is.
void fit_image(const ImageView& from, const Fit& fit, uint8_t* to, int64_t reduction = 1);

/// An image whose declared size is beyond this is refused before anything is allocated.
inline constexpr int64_t kMostPixels = 178'956'970;

/// Decodes images one after another, keeping its buffers. For one thread.
class ImageDecoder {
 public:
  ImageDecoder();
  ~ImageDecoder();

  struct Size {
    int64_t width = 0, height = 0;
  };

  /// Reads the header of a JPEG or PNG file in memory, which must live until decode(). The size is that of the upright
  /// image: an orientation told by EXIF is followed. Throws Error(data) naming `name`.
  Size open(std::span<const std::byte> file, const std::string& name);

  /// The opened image with 1 (grey) or 3 (RGB) channels; valid until the next call. Alpha is dropped, 16 bits become 8,
  /// CMYK becomes RGB. A JPEG may come out smaller by `reduction` (1, 2, 4 or 8; rounded up), others ignore it; the
  /// view tells. Throws Error(data) when the file is cut off or damaged.
  ImageView decode(int64_t channels, int64_t reduction = 1);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gputrain::data
