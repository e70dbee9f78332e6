#include <algorithm>
#include <array>
#include <vector>

#include <png.h>

#include "gputrain/core/error.hpp"
#include "gputrain/data/one_sample.hpp"
#include "gputrain/data/png.hpp"

namespace gputrain::data {
namespace {

constexpr size_t kColours = 256;

std::string png_with(png_uint_32 format, const uint8_t* pixels, int64_t width, int64_t height, const uint8_t* palette) {
  png_image control{};
  control.version = PNG_IMAGE_VERSION;
  control.width = static_cast<png_uint_32>(width);
  control.height = static_cast<png_uint_32>(height);
  control.format = format;
  control.colormap_entries = palette != nullptr ? kColours : 0;
  std::string file(PNG_IMAGE_PNG_SIZE_MAX(control), '\0');
  png_alloc_size_t size = file.size();
  const int is_written = png_image_write_to_memory(&control, file.data(), &size, 0, pixels, 0, palette);
  GPUTRAIN_ASSERT(is_written != 0, "libpng writes what fits");
  file.resize(size);
  return file;
}

/// Spreads the bits of a number, three by three, over the highest, next and further bits of red, green and blue.
std::array<uint8_t, 3 * kColours> voc_palette() {
  std::array<uint8_t, 3 * kColours> palette{};
  for (size_t number = 0; number < kColours; ++number)
    for (size_t bit = 0; bit < 8; ++bit)
      palette[3 * number + bit % 3] |= static_cast<uint8_t>((number >> bit & 1) << (7 - bit / 3));
  return palette;
}

}  // namespace

std::string png_of(const ImageView& image) {
  return png_with(image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB, image.pixels, image.width, image.height,
                  nullptr);
}

std::string mask_png_of(const uint8_t* numbers, int64_t width, int64_t height) {
  static const std::array<uint8_t, 3 * kColours> palette = voc_palette();
  return png_with(PNG_FORMAT_RGB_COLORMAP, numbers, width, height, palette.data());
}

std::string png_of(const Dataset& dataset, int64_t index, const ReadContext& context) {
  const OneSample sample(dataset, index, context);
  const auto& sizes = dataset.layout().input().sizes;
  return png_of({.pixels = sample.values<uint8_t>(0), .width = sizes[1], .height = sizes[0], .channels = sizes[2]});
}

std::string mask_png_of(const Dataset& dataset, int64_t index, const ReadContext& context) {
  const OneSample sample(dataset, index, context);
  const Field& target = dataset.layout().fields[1];
  GPUTRAIN_ASSERT(target.target && target.sizes.size() == 2, "the sample has a mask");
  const auto* const classes = sample.values<int64_t>(1);
  std::vector<uint8_t> numbers(static_cast<size_t>(target.numel()));
  std::transform(classes, classes + target.numel(), numbers.begin(),
                 [](int64_t label) { return static_cast<uint8_t>(label == kIgnoreIndex ? 255 : label); });
  return mask_png_of(numbers.data(), target.sizes[1], target.sizes[0]);
}

}  // namespace gputrain::data
