#include "gputrain/data/picture_sheet.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>

#include "gputrain/core/numbers.hpp"
#include "gputrain/data/image.hpp"
#include "gputrain/data/png.hpp"
#include "letters.hpp"

namespace gputrain::data {
namespace {

using Size = ImageDecoder::Size;
using Colour = std::array<uint8_t, 3>;

constexpr int64_t kPlace = 160;                                                // longest side of an image, pixels
constexpr int64_t kGap = 8, kScale = 2, kLine = (kLetterHeight + 1) * kScale;  // between things; of letters; of lines
constexpr Colour kBlack{0, 0, 0}, kRed{190, 20, 20};

/// Returns the size in which an image is shown.
Size shown_size(const Size& size) {
  const int64_t side = std::max(size.width, size.height);
  if (side <= kPlace) return {size.width * (kPlace / side), size.height * (kPlace / side)};
  return {std::max<int64_t>(1, size.width * kPlace / side), std::max<int64_t>(1, size.height * kPlace / side)};
}

class Canvas {
 public:
  explicit Canvas(const Size& size) : size_(size), rgb_(static_cast<size_t>(3 * size.width * size.height), 255) {}

  void fill(int64_t left, int64_t top, int64_t side, const Colour& colour) {
    for (int64_t y = top; y < top + side; ++y)
      for (int64_t x = left; x < left + side; ++x) std::ranges::copy(colour, at(x, y));
  }

  /// Draws an image of three channels.
  void draw(const ImageView& image, bool is_mask, int64_t left, int64_t top) {
    const Size size = shown_size({image.width, image.height});
    std::vector<uint8_t> reduced;
    ImageView from = image;
    if (size.width < image.width && !is_mask) {
      reduced.resize(static_cast<size_t>(3 * size.width * size.height));
      fit_image(image,
                {.right = image.width,
                 .bottom = image.height,
                 .full_width = size.width,
                 .full_height = size.height,
                 .width = size.width,
                 .height = size.height},
                reduced.data());
      from = {.pixels = reduced.data(), .width = size.width, .height = size.height, .channels = 3};
    }
    for (int64_t y = 0; y < size.height; ++y)
      for (int64_t x = 0; x < size.width; ++x) {
        const int64_t pixel = y * from.height / size.height * from.width + x * from.width / size.width;
        std::copy_n(from.pixels + 3 * pixel, 3, at(left + x, top + y));
      }
  }

  /// Writes as much of a line as there is room for.
  void write(std::string text, const Colour& colour, int64_t left, int64_t top, int64_t width) {
    const auto most = static_cast<size_t>(width / (kLetterWidth * kScale));
    if (text.size() > most) text = text.substr(0, most - 2) + "..";
    for (const char character : text) {
      const uint64_t pixels = letter(character);
      for (int64_t i = 0; i < kLetterWidth * kLetterHeight; ++i)
        if ((pixels >> (kLetterWidth * kLetterHeight - 1 - i) & 1) != 0)
          fill(left + i % kLetterWidth * kScale, top + i / kLetterWidth * kScale, kScale, colour);
      left += kLetterWidth * kScale;
    }
  }

  PictureSheet finish() const {
    return {png_of({.pixels = rgb_.data(), .width = size_.width, .height = size_.height, .channels = 3}), size_.width,
            size_.height};
  }

 private:
  std::vector<uint8_t>::iterator at(int64_t x, int64_t y) { return rgb_.begin() + 3 * (y * size_.width + x); }

  Size size_;
  std::vector<uint8_t> rgb_;
};

/// Returns the height of the tallest image.
int64_t tallest(const std::vector<SheetTile>& tiles, ImageDecoder& decoder) {
  int64_t height = 0;
  for (const SheetTile& tile : tiles)
    for (const SheetTile::Image& image : tile.images)
      if (!image.png.empty())
        height = std::max(height, shown_size(decoder.open(std::as_bytes(std::span(image.png)), "a picture")).height);
  return height;
}

}  // namespace

PictureSheet picture_sheet(const std::vector<SheetTile>& tiles, int64_t columns) {
  ImageDecoder decoder;
  const int64_t below = tallest(tiles, decoder) + kGap / 2;
  const auto count = std::ssize(tiles), images = std::ssize(tiles.front().images);
  const Size tile{images * (kPlace + kGap), below + std::ssize(tiles.front().lines) * kLine + kGap};
  Canvas canvas({std::min(columns, count) * tile.width + kGap, ceil_divide(count, columns) * tile.height + kGap});
  for (int64_t i = 0; i < count; ++i) {
    const int64_t left = kGap + i % columns * tile.width, top = kGap + i / columns * tile.height;
    const SheetTile& shown = tiles[static_cast<size_t>(i)];
    int64_t x = left, y = top + below;
    for (const SheetTile::Image& image : shown.images) {
      if (!image.png.empty()) {
        decoder.open(std::as_bytes(std::span(image.png)), "a picture");
        canvas.draw(decoder.decode(3), image.is_mask, x, top);
      }
      x += kPlace + kGap;
    }
    for (const SheetTile::Line& line : shown.lines)
      canvas.write(line.text, line.is_red ? kRed : kBlack, left, std::exchange(y, y + kLine), tile.width - kGap);
  }
  return canvas.finish();
}

}  // namespace gputrain::data
