// Decoder of JPEG and PNG, and fitting of images to the size of the model's input.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace gputrain::data {

/// Pixels in memory, row by row without gaps: [height, width, channels]. Not owned.
struct ImageView {
  const uint8_t* pixels = nullptr;
  int64_t width = 0, height = 0, channels = 0;
};

/// Weights of the pixels that make one: of one, of two on each axis, of four.
enum class Filter { nearest, bilinear, bicubic };

/// Recipe of an output of `width` x `height`: resize the source box [left, right) x [top, bottom) to full_width x
/// full_height, show it from (x, y) on with black outside, then flip.
struct Fit {
  int64_t left = 0, top = 0, right = 0, bottom = 0;
  int64_t full_width = 0, full_height = 0;
  int64_t x = 0, y = 0;
  int64_t width = 0, height = 0;
  bool flip = false;
  Filter filter = Filter::bilinear;  // not nearest
};

/// Resizes with antialiasing, like Pillow and torchvision: the filter is as wide as the image shrinks. bicubic gives
/// the same bytes, bilinear differs by 1 at most. `to` is [height, width, channels]. `from` is smaller by the factor
/// `reduction` than the image that `fit` describes.
void fit_image(const ImageView& from, const Fit& fit, uint8_t* to, int64_t reduction = 1);

/// Does the same for a mask of one channel, with the nearest pixel, like Pillow. `to` [height, width] gets
/// class_of[value] of it, and `outside` where no pixel is.
void fit_mask(const ImageView& from, const Fit& fit, const std::array<int64_t, 256>& class_of, int64_t outside,
              int64_t* to);

/// Maximum of pixels: images that declare more are rejected before anything is allocated.
inline constexpr int64_t kMostPixels = 178'956'970;

/// Decoder of one image after another; reuses its buffers. Not thread-safe.
class ImageDecoder {
 public:
  ImageDecoder();
  ~ImageDecoder();

  struct Size {
    int64_t width = 0, height = 0;
    friend bool operator==(const Size&, const Size&) = default;
  };

  /// Reads the header of a JPEG or PNG file in memory; `file` must live until decode(). Returns the size of the upright
  /// image: EXIF orientation is applied. Throws Error(data), which names `name`.
  Size open(std::span<const std::byte> file, const std::string& name);

  /// Decodes the opened image to 1 (grey) or 3 (RGB) channels; valid until the next call. Drops alpha, converts 16 bits
  /// to 8 and CMYK to RGB. A JPEG is reduced by `reduction` (1, 2, 4 or 8; sizes are rounded up), a PNG is not: see the
  /// view's size. Throws Error(data) if the file is truncated or damaged.
  ImageView decode(int64_t channels, int64_t reduction = 1);
  /// Decodes the opened image to the numbers that it stores: the grey values of at most 8 bits, also where they are
  /// stored as colours, or the places in a palette. Throws Error(data) also for images without such numbers.
  ImageView decode_numbers();

 private:
  ImageView upright(const ImageView& stored);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gputrain::data
