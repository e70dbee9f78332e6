// Sheet: pictures and short texts in rows, as one PNG file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gputrain::data {

/// Part of a sheet: images side by side, with lines of text below them.
struct SheetTile {
  struct Image {
    std::string png = {};  // file that data/png.hpp writes; empty: its place stays free
    bool is_mask = false;  // colours stand for classes, so that they are not mixed
  };
  struct Line {
    std::string text = {};  // '?' replaces characters other than those of ASCII; what is too long is cut
    bool is_red = false;
  };
  std::vector<Image> images;
  std::vector<Line> lines;
};

struct PictureSheet {
  std::string png;
  int64_t width = 0, height = 0;
};

/// Draws the tiles in rows of `columns`. All have as many images, and as many lines, as the first one. An image has at
/// most 160 pixels on a side: larger ones are reduced, small ones enlarged by a whole number.
PictureSheet picture_sheet(const std::vector<SheetTile>& tiles, int64_t columns);

}  // namespace gputrain::data
