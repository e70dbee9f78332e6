#include <algorithm>
#include <cmath>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include "datasets/opened.hpp"

namespace gputrain::datasets {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string big_endian(uint32_t value) {
  std::string bytes;
  for (const int shift : {24, 16, 8, 0}) bytes += static_cast<char>(static_cast<unsigned char>(value >> shift));
  return bytes;
}

std::string idx(const std::vector<uint32_t>& sizes, const std::string& values) {
  std::string content = big_endian(0x0800 | static_cast<uint32_t>(sizes.size()));
  for (const uint32_t size : sizes) content += big_endian(size);
  return content + values;
}

std::string gzip(const std::string& content) {
  z_stream stream{};
  deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 9, Z_DEFAULT_STRATEGY);
  std::string packed(content.size() + 1000, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(content.data()));
  stream.avail_in = static_cast<uInt>(content.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  deflate(&stream, Z_FINISH);
  packed.resize(stream.total_out);
  deflateEnd(&stream);
  return packed;
}

/// Three images of 2 x 2: 0 1 2 3, 4 5 6 7, 8 9 10 11.
const std::string kValues{"\0\1\2\3\4\5\6\7\10\11\12\13", 12};
const std::string kImages = idx({3, 2, 2}, kValues);
const std::string kLabels = idx({3}, std::string("\1\0\2", 3));

class IdxTest : public FolderTest {
 protected:
  void write_set(const std::string& images, const std::string& labels, const std::string& role = "train") const {
    write(role + "-images-idx3-ubyte", images);
    write(role + "-labels-idx1-ubyte", labels);
  }
  data::DatasetSplits open_idx(const std::string& more = "") const {
    return open("{train: {path: " + folder_.string() + ", format: idx}" + more + "}");
  }
  std::string refusal(const std::string& images, const std::string& labels) const {
    write_set(images, labels);
    return error_of([this] { open_idx(); });
  }
};

TEST_F(IdxTest, ReadsImagesAndLabelsOfTheRole) {
  write_set(kImages, kLabels);
  write_set(idx({1, 2, 2}, "abcd"), idx({1}, "\2"), "t10k");
  const data::DatasetSplits datasets = open_idx(", val: {}");
  EXPECT_EQ(datasets.train->size(), 3);
  EXPECT_EQ(datasets.train->layout().input().sizes, (std::vector<int64_t>{2, 2, 1}));
  EXPECT_EQ(datasets.train->layout().outputs, 3);
  EXPECT_EQ(datasets.train->describe(), "3 images 2x2x1, 3 classes");
  const Sample second = read(*datasets.train, 1);
  EXPECT_EQ(std::memcmp(second.input.data(), "\4\5\6\7", 4), 0);
  EXPECT_EQ(second.target, std::vector<int64_t>{0});
  EXPECT_EQ(std::memcmp(read(*datasets.val, 0).input.data(), "abcd", 4), 0);
  EXPECT_EQ(datasets.val->layout().outputs, 3) << "the training data's";
}

TEST_F(IdxTest, KnowsItsContentPackedOrNot) {
  const auto hash = [this](const std::string& images, const std::string& labels) {
    write_set(images, labels);
    return open_idx().train->content_hash();
  };
  const uint64_t before = hash(kImages, kLabels);
  EXPECT_EQ(hash(gzip(kImages), kLabels), before);
  EXPECT_NE(hash(kImages, idx({3}, std::string("\1\2\0", 3))), before);
  EXPECT_NE(hash(std::string(kImages).replace(20, 1, "x"), kLabels), before);
}

TEST_F(IdxTest, NormalizesAllRolesByTrainingImages) {
  write_set(kImages, kLabels);
  write_set(idx({1, 2, 2}, "abcd"), idx({1}, "\2"), "t10k");
  const data::DatasetSplits datasets = open_idx(", val: {}");
  EXPECT_NEAR(datasets.train->normalization()->mean[0], 5.5 / 255, 1e-12);
  EXPECT_NEAR(datasets.train->normalization()->std[0], std::sqrt(143.0 / 12) / 255, 1e-12);
  EXPECT_EQ(datasets.val->normalization()->mean, datasets.train->normalization()->mean);
  const data::DatasetSplits told = open_idx(", image: {mean: [0.5], std: [0.25]}");
  EXPECT_EQ(told.train->normalization()->mean, std::vector<double>{0.5});
}

TEST_F(IdxTest, UnpacksGzip) {
  write("train-images-idx3-ubyte.gz", gzip(kImages.substr(0, 20)) + gzip(kImages.substr(20)));  // two members
  write("train-labels-idx1-ubyte.gz", gzip(kLabels));
  const data::DatasetSplits datasets = open_idx();
  EXPECT_EQ(std::memcmp(read(*datasets.train, 2).input.data(), "\10\11\12\13", 4), 0);
}

TEST_F(IdxTest, KeepsNonSquareImages) {
  const std::string values = "\1\2\3\4\5\6";
  write_set(idx({1, 2, 3}, values), idx({1}, std::string(1, '\0')));
  const data::DatasetSplits datasets = open_idx();
  EXPECT_EQ(datasets.train->layout().input().sizes, (std::vector<int64_t>{2, 3, 1}));
  for (const bool augment : {false, true}) {
    const Sample sample = read(*datasets.train, 0, {.augment = augment});
    EXPECT_EQ(std::memcmp(sample.input.data(), values.data(), values.size()), 0) << augment;
  }
}

// image_test.cpp registers this augmentation.
TEST_F(IdxTest, RecoloursTrainingSamplesAlone) {
  write_set(idx({1, 2, 2}, "\5\5\5\5"), idx({1}, std::string(1, '\0')));
  const data::DatasetSplits datasets = open_idx(", image: {augment: {droop: 1}}");
  int inverted = 0;
  for (int64_t epoch = 0; epoch < 100; ++epoch) {
    inverted += read(*datasets.train, 0, {.epoch = epoch, .augment = true}).input.back() == std::byte{250};
    EXPECT_EQ(read(*datasets.train, 0, {.epoch = epoch}).input.back(), std::byte{5});
  }
  EXPECT_NEAR(inverted, 50, 20);
}

TEST_F(IdxTest, HoldsOutAFixedPart) {
  std::string values, labels;
  for (int i = 0; i < 100; ++i) {
    values += std::string(4, static_cast<char>(i));
    labels += static_cast<char>(i % 10);
  }
  write_set(idx({100, 2, 2}, values), idx({100}, labels));
  const data::DatasetSplits datasets = open_idx(", val: {split: 20%}, test: {split: 5%}");
  EXPECT_EQ(datasets.train->size(), 75);
  EXPECT_EQ(datasets.val->size(), 20);
  EXPECT_EQ(datasets.test->size(), 5);
  std::vector<int> seen;
  for (const auto* part : {&datasets.train, &datasets.val, &datasets.test})
    for (int64_t i = 0; i < (*part)->size(); ++i) seen.push_back(std::to_integer<int>(read(**part, i).input[0]));
  // The split must never change, otherwise resumed runs would evaluate on samples that they trained on.
  EXPECT_EQ(std::vector<int>(seen.begin() + 75, seen.begin() + 80), (std::vector<int>{75, 16, 70, 72, 57}));
  EXPECT_FALSE(std::is_sorted(seen.begin(), seen.end()));
  std::sort(seen.begin(), seen.end());
  for (int i = 0; i < 100; ++i) ASSERT_EQ(seen[static_cast<size_t>(i)], i);
}

TEST_F(IdxTest, RefusesDamagedFiles) {
  EXPECT_THAT(refusal("", kLabels), HasSubstr("too short for the header"));
  EXPECT_THAT(refusal(kImages.substr(0, 10), kLabels), HasSubstr("too short for the header"));
  EXPECT_THAT(refusal("\x89PNG" + kImages, kLabels), HasSubstr("it begins with 0x89504e47 instead of 0x00000803"));
  EXPECT_THAT(refusal(kLabels + kValues, kLabels), HasSubstr("a file of labels in the place of images"));
  EXPECT_THAT(refusal(kImages, kImages),
              AllOf(HasSubstr("a file of images in the place of labels"), HasSubstr("may be swapped")));
  EXPECT_THAT(refusal(std::string(kImages).replace(2, 1, "\x0D"), kLabels), HasSubstr("0x00000d03"));  // floats
  EXPECT_THAT(refusal(kImages.substr(0, kImages.size() - 1), kLabels), HasSubstr("cut off: 1 bytes are missing"));
  EXPECT_THAT(refusal(kImages + "x", kLabels), HasSubstr("has extra bytes after the values"));
  EXPECT_THAT(refusal(idx({0, 28, 28}, ""), kLabels), HasSubstr("holds no values"));
  EXPECT_THAT(refusal(idx({0xFFFFFFFF, 0xFFFFFFFF, 0xFFFFFFFF}, kValues), kLabels),
              HasSubstr("more than the file can hold"));
  EXPECT_THAT(refusal(kImages, idx({2}, "\1\1")), HasSubstr("3 images in"));
}

TEST_F(IdxTest, NamesFilesOfAnotherKind) {
  EXPECT_THAT(refusal("<!DOCTYPE html>\n<html>", kLabels), HasSubstr("a web page, not an IDX file"));
  EXPECT_THAT(refusal(kImages, "version https://git-lfs.github.com/spec/v1\n"), HasSubstr("a Git LFS pointer"));
}

TEST_F(IdxTest, RefusesDamagedGzip) {
  const std::string packed = gzip(kImages);
  EXPECT_THAT(refusal(packed.substr(0, packed.size() / 2), kLabels), HasSubstr("cut off"));
  EXPECT_THAT(refusal(packed.substr(0, packed.size() - 3), kLabels), HasSubstr("cut off"));
  std::string damaged = packed;
  damaged[packed.size() - 6] = static_cast<char>(damaged[packed.size() - 6] ^ 1);  // damages the checksum
  EXPECT_THAT(refusal(damaged, kLabels), HasSubstr("damaged gzip data"));
  EXPECT_THAT(refusal(packed.substr(0, 4), kLabels), HasSubstr("cut off"));
}

// A few hundred bytes declare 4 TB: the reader must not allocate or unpack that much.
TEST_F(IdxTest, RefusesGzipBombs) {
  EXPECT_THAT(refusal(gzip(idx({1u << 20, 1u << 11, 1u << 11}, std::string(1000, '\0'))), kLabels),
              HasSubstr("more than the file can hold"));
  EXPECT_THAT(refusal(gzip(idx({3, 2, 2}, std::string(50'000'000, '\0'))), kLabels),
              HasSubstr("has extra bytes after the values"));
}

TEST_F(IdxTest, RefusesLabelsOutsideTheClasses) {
  write_set(kImages, kLabels);
  EXPECT_THAT(error_of([this] { open("{train: {path: " + folder_.string() + ", format: idx, num_classes: 2}}"); }),
              HasSubstr("label 2 of image 2 is outside of the 2 classes"));
  write_set(idx({1, 2, 2}, "abcd"), idx({1}, "\3"), "t10k");
  EXPECT_THAT(error_of([this] { open_idx(", val: {}"); }), HasSubstr("label 3 of image 0"));
}

TEST_F(IdxTest, NamesMissingOrAmbiguousFile) {
  EXPECT_THAT(error_of([this] { open_idx(); }), HasSubstr("no file like train-images-idx3-ubyte or"));
  write_set(kImages, kLabels);
  write("emnist-train-images-idx3-ubyte", kImages);
  EXPECT_THAT(error_of([this] { open_idx(); }), HasSubstr("both match"));
  const std::string missing = error_of([this] { open("{train: {path: " + path("mnits") + ", format: idx}}"); });
  EXPECT_THAT(missing, HasSubstr("looked for a folder of IDX files"));
  std::filesystem::create_directories(folder_ / "mnist");
  EXPECT_THAT(error_of([this] { open("{train: {path: " + path("mnits") + ", format: idx}}"); }),
              HasSubstr("try: '" + path("mnist") + "'"));
}

TEST(RealIdx, ReadsMnist) {
  GPUTRAIN_NEED_DATA(folder, "mnist");
  const data::DatasetSplits datasets = open("{train: {path: " + folder + ", format: idx}, val: {}}");
  EXPECT_EQ(datasets.train->describe(), "60,000 images 28x28x1, 10 classes");
  EXPECT_EQ(datasets.val->size(), 10000);
  EXPECT_NEAR(datasets.train->normalization()->mean[0], 0.1307, 5e-5);
  EXPECT_NEAR(datasets.train->normalization()->std[0], 0.3081, 5e-5);
  std::vector<int64_t> labels;
  for (int64_t i = 0; i < 10; ++i) labels.push_back(read(*datasets.train, i).target[0]);
  EXPECT_THAT(labels, ::testing::ElementsAre(5, 0, 4, 1, 9, 2, 1, 3, 1, 4));
}

}  // namespace
}  // namespace gputrain::datasets
