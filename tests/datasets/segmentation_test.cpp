// Images with masks: what is read, and that masks follow their images.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>
#include <set>
#include <span>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "datasets/jpegs.hpp"
#include "datasets/opened.hpp"
#include "datasets/tiny_images.hpp"
#include "gputrain/data/image.hpp"
#include "gputrain/data/loader.hpp"
#include "gputrain/data/png.hpp"
#include "support/python_reference.hpp"

namespace gputrain::datasets {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const InputSpec kLabelsPixels{.field = kImage, .target = Target::pixels};

std::string content_of_path(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::span<const std::byte> bytes_in(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

class SegmentationTest : public FolderTest {
 protected:
  data::DatasetSplits open_masked(const std::string& options = "num_classes: 4", const std::string& more = "") const {
    return open_for(kLabelsPixels,
                    "{train: {path: " + folder_.string() + ", format: segmentation, " + options + "}" + more + "}");
  }

  /// An image and its mask of 4 classes, in rectangles. The image is as bright as the class, so that one tells where
  /// the other should be.
  void write_pair(const std::string& name, int seed, uint32_t width = 32, uint32_t height = 24) const {
    std::vector<uint8_t> mask(width * height, 0), image;
    for (uint32_t i = 0; i < 6; ++i) {
      const uint32_t left = (7 * i + 5 * static_cast<uint32_t>(seed)) % width, top = (5 * i + 3) % height;
      for (uint32_t y = top; y < std::min(height, top + 9); ++y)
        for (uint32_t x = left; x < std::min(width, left + 8); ++x) mask[y * width + x] = static_cast<uint8_t>(i % 4);
    }
    for (const uint8_t label : mask) image.push_back(static_cast<uint8_t>(60 * label + 50));
    write("images/" + name + ".png", png_of_pixels(image, width, height));
    write("masks/" + name + ".png", png_of_pixels(mask, width, height));
  }
};

/// How many pixels are not as bright as their class, of those that count. Outside the image it is black, and none
/// counts.
int64_t misplaced(const Sample& sample, int tolerance = 0) {
  int64_t count = 0;
  for (size_t i = 0; i < sample.target.size(); ++i) {
    const int64_t target = sample.target[i], wanted = target == kIgnoreIndex ? 0 : 60 * target + 50;
    if (std::abs(std::to_integer<int>(sample.input[i]) - static_cast<int>(wanted)) > tolerance) ++count;
  }
  return count;
}

TEST_F(SegmentationTest, ReadsImagesWithTheMasksOfTheirNames) {
  write_pair("a", 1);
  write_pair("deep/b", 2);
  for (const char* name : {"c", "d"}) write("images/" + std::string(name) + ".png", png_of({1, 2, 3}));
  write("masks/e.png", png_of({1, 2, 3}));
  write("masks/f.tif", "II");
  data::DatasetSplits datasets;
  const std::string warnings = warning_of([&] { datasets = open_masked(); });
  EXPECT_THAT(warnings, AllOf(HasSubstr("left out 2 images without a mask, such as c.png"),
                              HasSubstr("left out 1 mask without an image: e.png"), HasSubstr("f.tif")));
  EXPECT_EQ(datasets.train->describe(), "2 images 24x32x3, 4 classes of pixels");
  EXPECT_EQ(datasets.train->sample_name(1), "deep/b.png");
  EXPECT_THAT(datasets.train->class_names(), ElementsAre("0", "1", "2", "3"));
  const data::Field target = *datasets.train->layout().target();
  EXPECT_THAT(target.sizes, ElementsAre(24, 32));
  EXPECT_EQ(target.fill, kIgnoreIndex);
}

TEST_F(SegmentationTest, TakesTheNamesOfAList) {
  for (const char* name : {"1", "2", "3", "4"}) write_pair(name, 1);
  write("images/5.png", png_of({1, 2, 3}));
  write("sets/train.txt", "4\r\n2\r\n\r\n");
  write("sets/val.txt", "3 \n");
  data::DatasetSplits datasets;
  EXPECT_EQ(warning_of(
                [&] { datasets = open_masked("num_classes: 4, list: sets/train.txt", ", val: {list: sets/val.txt}"); }),
            "");
  ASSERT_EQ(datasets.train->size(), 2);
  EXPECT_EQ(datasets.train->sample_name(0), "2.png");
  EXPECT_EQ(datasets.val->sample_name(0), "3.png");
  write("sets/val.txt", "5\n");
  EXPECT_THAT(error_of([&] { open_masked("num_classes: 4, list: sets/val.txt"); }),
              AllOf(HasSubstr("sets/val.txt"), HasSubstr("5 has no image or no mask")));
}

TEST_F(SegmentationTest, GivesTheNumbersOfMasksTheirClasses) {
  write("images/1.png", png_of({1, 2, 3}, 2, 2));
  write("masks/1.png", png_of_pixels(std::vector<uint8_t>{0, 255, 255, 7}, 2, 2));
  const auto targets = [this](const std::string& options) { return read(*open_masked(options).train, 0).target; };
  EXPECT_THAT(targets("num_classes: 8"), ElementsAre(0, kIgnoreIndex, kIgnoreIndex, 7));
  EXPECT_THAT(targets("values: [7, 255, 0], ignore_index: null"), ElementsAre(2, 1, 1, 0));
  EXPECT_THAT(targets("values: [0, 255], ignore_index: 7, class_names: [sky, cat]"),
              ElementsAre(0, 1, 1, kIgnoreIndex));
  EXPECT_THAT(error_of([&] { targets("num_classes: 7"); }),
              AllOf(HasSubstr("masks/1.png"), HasSubstr("the number 7, which is none of 7 classes")));
  EXPECT_THAT(error_of([&] { targets("num_classes: 8, ignore_index: null"); }), HasSubstr("the number 255"));
}

TEST_F(SegmentationTest, RefusesClassesThatContradict) {
  write_pair("a", 1);
  const auto refusal = [this](const std::string& options) {
    return error_of([&] { open_masked(options); }, ExitCode::usage);
  };
  EXPECT_THAT(refusal("images: images"), HasSubstr("how many classes there are is not known"));
  EXPECT_THAT(refusal("num_classes: 3, class_names: [a, b]"), HasSubstr("has 2 names for 3 classes"));
  EXPECT_THAT(refusal("num_classes: 3, values: [1, 2]"), HasSubstr("has 2 numbers for 3 classes"));
  EXPECT_THAT(refusal("values: [0, 255]"), HasSubstr("255 is a class"));
  std::string many = "ignore_index: null, class_names: [c0";
  for (int i = 1; i < 257; ++i) many += ", c" + std::to_string(i);
  EXPECT_THAT(refusal(many + "]"), HasSubstr("at most 256 classes apart, and these are 257"));
  EXPECT_THAT(refusal("values: [1, 2, 1]"), HasSubstr("has a number twice"));
  EXPECT_THAT(error_of([&] { open_masked("num_classes: 4", ", val: {num_classes: 5}"); }, ExitCode::usage),
              HasSubstr("its classes are not those of the training data"));
}

TEST_F(SegmentationTest, ReadsGreyMasksThatAreStoredAsColours) {
  write("images/1.png", png_of({1, 2, 3}, 2, 2));
  const std::vector<uint8_t> pixels{0, 0, 0, 255, 255, 255, 255, 255, 255, 0, 0, 0};
  write("masks/1.png", data::png_of({.pixels = pixels.data(), .width = 2, .height = 2, .channels = 3}));
  const auto datasets = open_masked("values: [0, 255], ignore_index: null");
  EXPECT_THAT(read(*datasets.train, 0).target, ElementsAre(0, 1, 1, 0));
}

TEST_F(SegmentationTest, PairsNamesWithSuffixes) {
  for (const char* name : {"1", "2"}) {
    write("images/" + std::string(name) + "_rgb.png", png_of({1, 2, 3}, 2, 2));
    write("masks/" + std::string(name) + "_mask.png", png_of_pixels(std::vector<uint8_t>(4, 1), 2, 2));
  }
  write("masks/1_instances.png", png_of_pixels(std::vector<uint8_t>(4, 2), 2, 2));
  write("sets/train.txt", "2\n");
  data::DatasetSplits datasets;
  const std::string suffixes = "num_classes: 4, image_suffix: _rgb, mask_suffix: _mask";
  EXPECT_THAT(warning_of([&] { datasets = open_masked(suffixes); }), HasSubstr("1_instances.png"));
  ASSERT_EQ(datasets.train->size(), 2);
  EXPECT_EQ(datasets.train->sample_name(0), "1_rgb.png");
  EXPECT_THAT(read(*datasets.train, 0).target, ElementsAre(1, 1, 1, 1));
  EXPECT_EQ(open_masked(suffixes + ", list: sets/train.txt").train->sample_name(0), "2_rgb.png");
}

TEST_F(SegmentationTest, ShowsTheNamesThatDoNotFit) {
  write("images/1.png", png_of({1, 2, 3}, 2, 2));
  write("masks/1_mask.png", png_of_pixels(std::vector<uint8_t>(4, 1), 2, 2));
  EXPECT_THAT(error_of([&] { open_masked(); }),
              AllOf(HasSubstr("the first image is 1.png, the first mask 1_mask.png"), HasSubstr("mask_suffix: _mask")));
}

TEST_F(SegmentationTest, RefusesWhatIsNoMask) {
  write("images/1.png", png_of({1, 2, 3}, 8, 8));
  const auto refusal = [this](const std::string& mask) {
    write("masks/1.png", mask);
    return error_of([&] { read(*open_masked().train, 0); });
  };
  EXPECT_THAT(refusal(png_of({0, 1, 2}, 8, 8)),
              AllOf(HasSubstr("masks/1.png"), HasSubstr("no mask: its pixels are colours")));
  EXPECT_THAT(refusal(png_of_pixels(std::vector<uint8_t>(8 * 9, 0), 8, 9)),
              HasSubstr("a mask of 8 x 9 for an image of 8 x 8"));
  const std::vector<std::byte> jpeg = smooth_jpeg(8, 8);
  EXPECT_THAT(refusal({reinterpret_cast<const char*>(jpeg.data()), jpeg.size()}),
              HasSubstr("a JPEG instead of a mask"));
  std::filesystem::remove(path("masks/1.png"));
  EXPECT_THAT(error_of([&] { open_masked(); }), HasSubstr("no image has a mask of the same name"));
  EXPECT_THAT(error_of([&] { open_masked("num_classes: 4, masks: labels"); }),
              HasSubstr("looked for a folder of masks"));
  for (const char* name : {"masks/1.png", "images/1.jpg"}) write(name, png_of({1, 2, 3}, 8, 8));
  EXPECT_THAT(error_of([&] { open_masked(); }), HasSubstr("1.jpg and 1.png have one name"));
}

/// The PNG with an EXIF orientation; checksums of such chunks are not read.
std::string with_orientation(const std::string& png, char orientation) {
  using std::string_literals::operator""s;
  const std::string exif = "II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0"s + orientation + "\0\0\0\0\0\0\0"s;
  constexpr size_t kHeaderEnd = 33;
  std::string all = png;
  return all.insert(kHeaderEnd, "\0\0\0"s + static_cast<char>(exif.size()) + "eXIf" + exif + "\0\0\0\0"s);
}

TEST_F(SegmentationTest, TakesMasksOfUprightImages) {
  constexpr char kQuarterTurn = 6;
  write("images/1.png", with_orientation(png_of({1, 2, 3}, 8, 6), kQuarterTurn));
  write("masks/1.png", png_of_pixels(std::vector<uint8_t>(48, 1), 6, 8));
  const data::DatasetSplits datasets = open_masked();
  EXPECT_THAT(datasets.train->layout().input().sizes, ElementsAre(8, 6, 3));
  const auto warning = [&] { return warning_of([&] { read(*datasets.train, 0); }); };
  EXPECT_THAT(warning(), HasSubstr("1.png is turned by its EXIF orientation: its mask must be of the upright image"));
  EXPECT_EQ(warning(), "");
  write("masks/1.png", png_of_pixels(std::vector<uint8_t>(48, 1), 8, 6));
  EXPECT_THAT(error_of([&] { read(*datasets.train, 0); }),
              HasSubstr("a mask of 8 x 6 for an image of 6 x 8, which its EXIF orientation turns"));
}

TEST_F(SegmentationTest, RefusesModelsAndAugmentationsThatMasksCannotFollow) {
  write_pair("a", 1);
  const std::string data = "{train: {path: " + folder_.string() + ", format: segmentation, num_classes: 4}";
  EXPECT_THAT(error_of([&] { open_for({}, data + "}"); }, ExitCode::usage), HasSubstr("model: {type: unet}"));
  const auto refusal = [&](const std::string& augment) {
    return error_of([&] { open_masked("num_classes: 4", ", image: {augment: {" + augment + "}}"); }, ExitCode::usage);
  };
  EXPECT_THAT(refusal("mix: {mixup: 0.8}"), HasSubstr("data.image.augment.mix: images with masks are not mixed"));
  EXPECT_THAT(refusal("auto_augment: trivial"), HasSubstr("data.image.augment.auto_augment: auto_augment moves"));
  EXPECT_EQ(refusal("color_jitter: 0.4, grayscale: 0.1, hflip: 0.5, vflip: 0.5"), "");
}

TEST_F(SegmentationTest, MovesMasksWithTheirImages) {
  for (int i = 0; i < 3; ++i) write_pair(std::to_string(i), i);
  const data::DatasetSplits datasets = open_masked(
      "num_classes: 4", ", image: {channels: 1, augment: {random_crop_padding: 6, hflip: 0.5, vflip: 0.5}}");
  std::set<std::vector<int64_t>> seen;
  bool has_padding = false;
  for (int64_t epoch = 0; epoch < 12; ++epoch)
    for (int64_t i = 0; i < 3; ++i) {
      const Sample sample = read(*datasets.train, i, {.seed = 5, .epoch = epoch, .augment = true});
      EXPECT_EQ(misplaced(sample), 0);
      seen.insert(sample.target);
      has_padding = has_padding || std::ranges::find(sample.target, kIgnoreIndex) != sample.target.end();
    }
  EXPECT_GE(seen.size(), 30U) << "drawn anew";
  EXPECT_TRUE(has_padding);
}

TEST_F(SegmentationTest, ResizesMasksWithTheirImages) {
  write_pair("a", 1, 64, 48);
  write_pair("b", 2, 50, 70);
  const data::DatasetSplits crops = open_masked(
      "num_classes: 4", ", image: {channels: 1, size: 40, augment: {random_resized_crop: [0.5, 1], hflip: 0.5}}");
  const data::DatasetSplits whole = open_masked("num_classes: 4", ", image: {channels: 1, size: 40}");
  // Where rectangles end, the image is blended.
  const auto expect_aligned = [](const Sample& sample) {
    EXPECT_LT(misplaced(sample, 20), 0.12 * static_cast<double>(sample.target.size()));
    EXPECT_THAT(sample.target, Each(::testing::Ne(kIgnoreIndex)));
  };
  for (int64_t i = 0; i < 2; ++i) {
    expect_aligned(read(*whole.train, i));
    for (int64_t epoch = 0; epoch < 8; ++epoch)
      expect_aligned(read(*crops.train, i, {.seed = 5, .epoch = epoch, .augment = true}));
  }
}

TEST_F(SegmentationTest, ChangesColoursOfImagesAlone) {
  write_pair("a", 1);
  const auto sample_with = [this](const std::string& augment) {
    const auto datasets = open_masked("num_classes: 4", ", image: {augment: {hflip: 0.5, " + augment + "}}");
    return read(*datasets.train, 0, {.seed = 3, .epoch = 2, .augment = true});
  };
  const Sample plain = sample_with("vflip: 0");
  for (const char* augment : {"color_jitter: 0.8", "random_erasing: {probability: 1, mode: rand}"}) {
    const Sample changed = sample_with(augment);
    EXPECT_EQ(changed.target, plain.target) << augment;
    EXPECT_NE(changed.input, plain.input) << augment;
  }
}

TEST_F(SegmentationTest, GivesTheSameBatchesForAnyNumberOfWorkers) {
  for (int i = 0; i < 11; ++i) write_pair(std::to_string(i), i);
  write("masks/10.png", png_of_pixels(std::vector<uint8_t>(32 * 24, 255), 32, 24));
  const data::DatasetSplits datasets = open_masked(
      "num_classes: 4", ", image: {size: 16, augment: {random_resized_crop: [0.3, 1], hflip: 0.5, vflip: 0.5}}");
  const auto batches_with = [&](int workers) {
    data::LoaderOptions options;
    options.partition = {.global_batch = 4, .micro_batch = 4};
    options.num_workers = workers;
    options.augment = true;
    options.steps = 6;
    data::Loader loader(datasets.train, options);
    std::vector<Batch> batches;
    for (int step = 0; step < 6; ++step)
      for (const Batch& batch : loader.next_step().micro_batches) {
        batches.push_back(batch);
        for (BatchField& field : batches.back().fields) field.values = field.values.clone();
      }
    return batches;
  };
  const auto alone = batches_with(0), three = batches_with(3);
  ASSERT_EQ(alone.size(), three.size());
  int64_t weight = 0;
  for (size_t i = 0; i < alone.size(); ++i) {
    for (const char* field : {kImage, kTarget})
      EXPECT_TRUE(alone[i].tensor(field).equal(three[i].tensor(field))) << field << " of batch " << i;
    EXPECT_EQ(alone[i].weight, three[i].weight);
    EXPECT_EQ(alone[i].weight, alone[i].tensor(kTarget).ne(kIgnoreIndex).sum().item<int64_t>());
    weight += alone[i].weight;
  }
  EXPECT_EQ(weight, 2 * 10 * 16 * 16) << "two epochs, without the image of which no pixel counts";
}

TEST_F(SegmentationTest, KnowsOtherMasksFromItsOwn) {
  write_pair("a", 1);
  const auto hash = [this](const std::string& options) { return open_masked(options).train->content_hash(); };
  const uint64_t before = hash("num_classes: 4");
  EXPECT_EQ(hash("num_classes: 4"), before);
  EXPECT_NE(hash("values: [3, 2, 1, 0]"), before);
  write("masks/a.png", png_of_pixels(std::vector<uint8_t>(32 * 24, 2), 32, 24));
  EXPECT_NE(hash("num_classes: 4"), before);
}

TEST_F(SegmentationTest, ReadsAndResizesMasksLikePillow) {
  GPUTRAIN_NEED_REFERENCE("PIL");
  ASSERT_TRUE(gputrain::testing::run_reference("datasets/segmentation_reference.py", {folder_}));
  data::ImageDecoder decoder;
  const auto mask_of = [&](const std::string& name) {
    const std::string file = content_of_path(path(name + ".png"));
    decoder.open(bytes_in(file), name);
    return decoder.decode_numbers();
  };
  for (const std::string name : {"grey", "binary", "palette", "palette16", "palette4"}) {
    const data::ImageView view = mask_of(name);
    const std::string expected = content_of_path(path(name + ".numbers"));
    ASSERT_EQ(static_cast<size_t>(view.width * view.height), expected.size());
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), reinterpret_cast<const char*>(view.pixels))) << name;
  }
  std::array<int64_t, 256> same{};
  std::iota(same.begin(), same.end(), int64_t{0});
  std::ifstream cases(path("cases.txt"));
  std::string name, file;
  data::Fit fit;
  int count = 0;
  while (cases >> name >> fit.left >> fit.top >> fit.right >> fit.bottom >> fit.full_width >> fit.full_height >> file) {
    fit.width = fit.full_width;
    fit.height = fit.full_height;
    const std::string expected = content_of_path(path(file));
    std::vector<int64_t> found(static_cast<size_t>(fit.width * fit.height));
    ASSERT_EQ(found.size(), expected.size());
    for (const bool flip : {false, true}) {
      fit.flip = flip;
      data::fit_mask(mask_of(name), fit, same, -1, found.data());
      int64_t wrong = 0;
      for (int64_t y = 0; y < fit.height; ++y)
        for (int64_t x = 0; x < fit.width; ++x) {
          const int64_t from = y * fit.width + (flip ? fit.width - 1 - x : x);
          wrong += static_cast<uint8_t>(expected[static_cast<size_t>(from)]) !=
                   found[static_cast<size_t>(y * fit.width + x)];
        }
      EXPECT_EQ(wrong, 0) << file << (flip ? ", flipped" : "");
    }
    ++count;
  }
  EXPECT_EQ(count, 6);
}

TEST(MaskPng, IsReadAsItWasWritten) {
  std::vector<uint8_t> numbers(256 * 2);
  for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<uint8_t>(i * 7);
  const std::string file = data::mask_png_of(numbers.data(), 64, 8);
  data::ImageDecoder decoder;
  decoder.open(bytes_in(file), "mask");
  const data::ImageView view = decoder.decode_numbers();
  EXPECT_TRUE(std::equal(numbers.begin(), numbers.end(), view.pixels));
  decoder.open(bytes_in(file), "mask");
  const data::ImageView colours = decoder.decode(3);
  const auto colour_of = [&](uint8_t number) {
    const auto place = std::ranges::find(numbers, number) - numbers.begin();
    return std::vector<int>(colours.pixels + 3 * place, colours.pixels + 3 * place + 3);
  };
  EXPECT_THAT(colour_of(1), ElementsAre(128, 0, 0)) << "as in PASCAL VOC, where 1 is an aeroplane";
  EXPECT_THAT(colour_of(15), ElementsAre(192, 128, 128));
  EXPECT_THAT(colour_of(255), ElementsAre(224, 224, 192));
}

}  // namespace
}  // namespace gputrain::datasets
