#include <png.h>

#include "gputrain/core/error.hpp"
#include "gputrain/data/one_sample.hpp"
#include "gputrain/data/png.hpp"

namespace gputrain::data {

std::string png_of(const ImageView& image) {
  png_image control{};
  control.version = PNG_IMAGE_VERSION;
  control.width = static_cast<png_uint_32>(image.width);
  control.height = static_cast<png_uint_32>(image.height);
  control.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  std::string file(PNG_IMAGE_PNG_SIZE_MAX(control), '\0');
  png_alloc_size_t size = file.size();
  const int is_written = png_image_write_to_memory(&control, file.data(), &size, 0, image.pixels, 0, nullptr);
  GPUTRAIN_ASSERT(is_written != 0, "libpng writes what fits");
  file.resize(size);
  return file;
}

std::string png_of(const Dataset& dataset, int64_t index, const ReadContext& context) {
  const OneSample sample(dataset, index, context);
  const auto& sizes = dataset.layout().input().sizes;
  return png_of({.pixels = sample.values<uint8_t>(0), .width = sizes[1], .height = sizes[0], .channels = sizes[2]});
}

}  // namespace gputrain::data
