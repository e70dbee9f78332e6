#include "gputrain/data/picture_sheet.hpp"

#include <algorithm>
#include <array>
#include <span>

#include <gtest/gtest.h>

#include "gputrain/data/image.hpp"
#include "gputrain/data/png.hpp"

namespace gputrain::data {
namespace {

using Colour = std::array<int, 3>;
constexpr Colour kWhite{255, 255, 255};

std::string image(int64_t width, int64_t height, const std::vector<uint8_t>& greys) {
  return png_of({.pixels = greys.data(), .width = width, .height = height, .channels = 1});
}

/// Pixels of a sheet, as a reader of PNG files sees them.
class Seen {
 public:
  explicit Seen(const PictureSheet& sheet) {
    const ImageDecoder::Size size = decoder_.open(std::as_bytes(std::span(sheet.png)), "sheet");
    EXPECT_EQ(size, (ImageDecoder::Size{sheet.width, sheet.height}));
    view_ = decoder_.decode(3);
  }
  Colour at(int64_t x, int64_t y) const {
    const uint8_t* pixel = view_.pixels + 3 * (y * view_.width + x);
    return {pixel[0], pixel[1], pixel[2]};
  }
  /// Counts pixels that are not white from (x, y) on.
  int64_t marked(int64_t x, int64_t y, int64_t width, int64_t height) const {
    int64_t count = 0;
    for (int64_t i = 0; i < width * height; ++i) count += at(x + i % width, y + i / width) == kWhite ? 0 : 1;
    return count;
  }

 private:
  ImageDecoder decoder_;
  ImageView view_;
};

TEST(PictureSheet, EnlargesSmallImagesByWholePixels) {
  const std::string png = image(3, 2, {0, 50, 100, 150, 200, 250});
  const PictureSheet sheet = picture_sheet({{.images = {{png}, {png}}, .lines = {}}, {.images = {{}, {png}}}}, 1);
  EXPECT_EQ(sheet.width, 8 + 2 * 168);
  EXPECT_EQ(sheet.height, 8 + 2 * (106 + 4 + 8));  // 53 times as large
  const Seen seen(sheet);
  for (const auto& [left, top] : {std::pair{8, 8}, {176, 8}, {176, 126}})
    for (int i = 0; i < 6; ++i) {
      const int x = left + i % 3 * 53, y = top + i / 3 * 53;
      for (const int corner : {0, 52}) EXPECT_EQ(seen.at(x + corner, y + corner), (Colour{50 * i, 50 * i, 50 * i}));
    }
  EXPECT_EQ(seen.marked(8, 126, 160, 106), 0) << "an image that is not there leaves its place free";
}

TEST(PictureSheet, ReducesLargeImagesButMixesNoClassesOfMasks) {
  std::vector<uint8_t> stripes;
  for (int i = 0; i < 400 * 100; ++i) stripes.push_back(i % 2 == 0 ? 0 : 200);
  std::vector<uint8_t> classes;
  for (int i = 0; i < 400 * 100; ++i) classes.push_back(i % 2 == 0 ? 0 : 1);
  const PictureSheet sheet =
      picture_sheet({{.images = {{image(400, 100, stripes)}, {mask_png_of(classes.data(), 400, 100), true}}}}, 4);
  EXPECT_EQ(sheet.width, 8 + 2 * 168) << "a row has no more columns than there are tiles";
  EXPECT_EQ(sheet.height, 8 + 40 + 4 + 8);
  const Seen seen(sheet);
  const Colour grey = seen.at(8 + 80, 8 + 20);
  EXPECT_NEAR(grey[0], 100, 30);
  for (int x = 176; x < 176 + 160; ++x) {
    const Colour colour = seen.at(x, 8);
    EXPECT_TRUE(colour == (Colour{0, 0, 0}) || colour == (Colour{128, 0, 0})) << x;
  }
}

TEST(PictureSheet, WritesLinesBelowImagesAndCutsThem) {
  const std::string png = image(1, 1, {255});
  const auto sheet_with = [&](const std::vector<SheetTile::Line>& lines) {
    return picture_sheet({{.images = {{png}}, .lines = lines}}, 1);
  };
  const PictureSheet both = sheet_with({{"|"}, {"|", true}});
  EXPECT_EQ(both.height, 8 + 160 + 4 + 2 * 22 + 8);
  const Seen seen(both);
  EXPECT_EQ(seen.marked(8, 172, 12, 22), 2 * 2 * 7) << "a stroke of 7 pixels, twice as large";
  EXPECT_EQ(seen.marked(8, 194, 12, 22), 2 * 2 * 7);
  EXPECT_EQ(seen.at(12, 176), (Colour{0, 0, 0}));
  EXPECT_EQ(seen.at(12, 198), (Colour{190, 20, 20}));
  EXPECT_EQ(sheet_with({{"fourteen signs"}}).png, sheet_with({{"fourteen si.."}}).png);
  EXPECT_EQ(sheet_with({{"b\xC3\xA4r\n"}}).png, sheet_with({{"b??r?"}}).png);
  EXPECT_NE(sheet_with({{"bar"}}).png, sheet_with({{"b??r?"}}).png);
}

}  // namespace
}  // namespace gputrain::data
