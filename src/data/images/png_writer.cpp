#include <png.h>

#include "gputrain/core/error.hpp"
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

}  // namespace gputrain::data
