// Makes small image files.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <png.h>

namespace gputrain::datasets {

/// A PNG of these pixels, grey or RGB.
inline std::string png_of_pixels(const std::vector<uint8_t>& pixels, uint32_t width, uint32_t height) {
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  image.width = width;
  image.height = height;
  image.format = pixels.size() == width * height ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  std::string file(1 << 16, '\0');
  png_alloc_size_t size = file.size();
  EXPECT_TRUE(png_image_write_to_memory(&image, file.data(), &size, 0, pixels.data(), 0, nullptr));
  file.resize(size);
  return file;
}

/// A PNG of one colour.
inline std::string png_of(std::array<uint8_t, 3> colour, uint32_t width = 4, uint32_t height = 4) {
  std::vector<uint8_t> pixels;
  for (uint32_t i = 0; i < width * height; ++i) pixels.insert(pixels.end(), colour.begin(), colour.end());
  return png_of_pixels(pixels, width, height);
}

}  // namespace gputrain::datasets
