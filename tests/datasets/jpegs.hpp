// Makes JPEG files of every kind that libjpeg writes.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include <jpeglib.h>

namespace gputrain::datasets {

struct JpegKind {
  int quality = 90;
  J_COLOR_SPACE pixels = JCS_RGB, stored = JCS_YCbCr;
  std::vector<std::pair<int, int>> sampling = {{2, 2}};  // across and down, of the first components; others 1 x 1
  bool progressive = false;
};

/// Smooth colours; equal ones for equal sizes and numbers of components.
inline std::vector<std::byte> smooth_jpeg(int width, int height, const JpegKind& kind = {}) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);  // ends the process at an error
  jpeg_create_compress(&info);
  unsigned char* packed = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &packed, &size);
  info.image_width = static_cast<JDIMENSION>(width);
  info.image_height = static_cast<JDIMENSION>(height);
  info.input_components = kind.pixels == JCS_CMYK ? 4 : 3;
  info.in_color_space = kind.pixels;
  jpeg_set_defaults(&info);
  jpeg_set_colorspace(&info, kind.stored);
  jpeg_set_quality(&info, kind.quality, TRUE);
  if (kind.progressive) jpeg_simple_progression(&info);
  for (size_t i = 0; i < static_cast<size_t>(info.num_components); ++i) {
    const auto [across, down] = i < kind.sampling.size() ? kind.sampling[i] : std::pair(1, 1);
    info.comp_info[i].h_samp_factor = across;
    info.comp_info[i].v_samp_factor = down;
  }
  jpeg_start_compress(&info, TRUE);
  std::vector<uint8_t> line(static_cast<size_t>(width * info.input_components));
  for (int y = 0; y < height; ++y) {
    for (size_t i = 0; i < line.size(); ++i) {
      const auto components = static_cast<size_t>(info.input_components);
      const double x = static_cast<double>(i / components), c = static_cast<double>(i % components);
      line[i] = static_cast<uint8_t>(127 + 90 * std::sin(x / 20 + c) * std::cos(y / 15.0));
    }
    JSAMPROW row = line.data();
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  std::vector<std::byte> file(reinterpret_cast<std::byte*>(packed), reinterpret_cast<std::byte*>(packed) + size);
  std::free(packed);
  return file;
}

}  // namespace gputrain::datasets
