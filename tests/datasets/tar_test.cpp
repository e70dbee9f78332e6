#include <cstdio>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "datasets/opened.hpp"
#include "datasets/tiny_images.hpp"

namespace gputrain::datasets {
namespace {

using ::testing::HasSubstr;

struct TarHeader {
  std::string name, content;
  char type = '0';
  std::string size_field = {};  // replaces the size of the content
  std::string prefix = {};
};

std::string octal(size_t value) {
  char text[13];
  std::snprintf(text, sizeof(text), "%011zo", value);
  return text;
}

std::string tar_entry(const TarHeader& entry) {
  std::string block(512, '\0');
  const std::string size = entry.size_field.empty() ? octal(entry.content.size()) : entry.size_field;
  block.replace(0, entry.name.size(), entry.name);
  block.replace(124, size.size(), size);
  block[156] = entry.type;
  block.replace(257, 8, std::string("ustar\00000", 8));
  block.replace(345, entry.prefix.size(), entry.prefix);
  block.replace(148, 8, 8, ' ');
  size_t sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  char checksum[8];
  std::snprintf(checksum, sizeof(checksum), "%06zo", sum);
  block.replace(148, 7, std::string(checksum, 7));
  std::string content = entry.content;
  content.resize((content.size() + 511) / 512 * 512);
  return block + content;
}

const std::string kEnd(1024, '\0');
const std::string kRed = png_of({255, 0, 0}), kGreen = png_of({0, 255, 0}), kBlue = png_of({0, 0, 255});

std::string pax(const std::string& records) {
  return tar_entry({.name = "PaxHeader", .content = records, .type = 'x'});
}

class TarTest : public FolderTest {
 protected:
  data::DatasetSplits open_tar(const std::string& content, const std::string& options = "",
                               const std::string& more = "") const {
    return open("{train: {path: " + write("images.tar", content) + ", format: tar" + options + "}" + more + "}");
  }
  std::string refusal(const std::string& content, const std::string& options = "") const {
    return error_of([&] { open_tar(content, options); });
  }
  static int first_byte(const data::Dataset& dataset, int64_t index, size_t channel) {
    return std::to_integer<int>(read(dataset, index).input[channel]);
  }
};

TEST_F(TarTest, ReadsClassesOfPrefixInNameOrder) {
  const std::string tar = tar_entry({"./train/", "", '5'}) + tar_entry({"./train/dog/b.png", kRed}) +
                          tar_entry({"./train/cat/a.PNG", kGreen}) + tar_entry({"./train/notes.txt", "x"}) +
                          tar_entry({"./test/dog/c.png", kBlue}) + kEnd;
  const data::DatasetSplits datasets = open_tar(tar, ", prefix: train", ", val: {prefix: test/}");
  EXPECT_EQ(datasets.train->describe(), "2 images 4x4x3, 2 classes");
  EXPECT_EQ(datasets.train->class_names(), (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(first_byte(*datasets.train, 0, 1), 255);
  EXPECT_EQ(read(*datasets.train, 0).target[0], 0);
  ASSERT_EQ(datasets.val->size(), 1);
  EXPECT_EQ(first_byte(*datasets.val, 0, 2), 255);
  EXPECT_EQ(read(*datasets.val, 0).target[0], 1) << "numbered as in the training data";
}

TEST_F(TarTest, ReadsLongNamesOfEveryKind) {
  const std::string folder = std::string(150, 'd'), name = folder + "/" + std::string(120, 'n') + ".png";
  const std::string record = " path=" + name + "\n", whole = std::to_string(record.size() + 3) + record;
  for (const std::string& tar :
       {pax(whole) + tar_entry({"short.png", kRed}),
        tar_entry({"././@LongLink", name + '\0', 'L'}) + tar_entry({"short.png", kRed}),
        tar_entry({.name = std::string(60, 'n') + ".png", .content = kRed, .prefix = folder})}) {
    const data::DatasetSplits datasets = open_tar(tar + tar_entry({"b/x.png", kBlue}) + kEnd);
    EXPECT_EQ(datasets.train->class_names(), (std::vector<std::string>{"b", folder}));
    EXPECT_EQ(first_byte(*datasets.train, 1, 0), 255);
  }
}

TEST_F(TarTest, ReadsSizesFromPaxAndBase256) {
  const std::string padded = kRed + std::string(512, 'z');  // the pax or base-256 size must win over this field
  const std::string size_record = " size=" + std::to_string(kRed.size()) + "\n";
  std::string binary(12, '\0');
  binary[0] = '\x80';
  binary[10] = static_cast<char>(kGreen.size() >> 8);
  binary[11] = static_cast<char>(kGreen.size());
  const std::string tar = pax(std::to_string(size_record.size() + 2) + size_record) +
                          tar_entry({.name = "a/1.png", .content = kRed, .size_field = octal(0)}) +
                          tar_entry({.name = "b/2.png", .content = kGreen, .size_field = binary}) + kEnd;
  const data::DatasetSplits datasets = open_tar(tar);
  EXPECT_EQ(first_byte(*datasets.train, 0, 0), 255);
  EXPECT_EQ(first_byte(*datasets.train, 1, 1), 255);
}

// Old programs store the target's size in the header of a link, although no content follows.
TEST_F(TarTest, SkipsLinksWithASize) {
  const std::string link = tar_entry({.name = "a/notes.txt", .type = '1', .size_field = octal(100000)});
  EXPECT_EQ(open_tar(link + tar_entry({"a/1.png", kRed}) + kEnd).train->size(), 1);
}

TEST_F(TarTest, TakesLastEntryOfAName) {
  const data::DatasetSplits datasets = open_tar(tar_entry({"a/1.png", kRed}) + tar_entry({"a/1.png", kBlue}) + kEnd);
  ASSERT_EQ(datasets.train->size(), 1);
  EXPECT_EQ(first_byte(*datasets.train, 0, 2), 255);
}

TEST_F(TarTest, WarnsOfNamesThatComeAgain) {
  const std::string twice = tar_entry({"a/1.png", kRed}) + tar_entry({"a/2.png", kRed}) + tar_entry({"a/1.png", kBlue});
  EXPECT_THAT(warning_of([&] { open_tar(twice + kEnd); }),
              HasSubstr("left out 1 image whose name comes again later in the archive: a/1.png"));
}

TEST_F(TarTest, RefusesJoinedArchives) {
  const std::string one = tar_entry({"a/1.png", kRed}) + std::string(10240, '\0');
  EXPECT_THAT(refusal(one + tar_entry({"b/1.png", kBlue}) + kEnd), HasSubstr("another archive follows the end mark"));
  EXPECT_EQ(open_tar(one + std::string(512, 'x')).train->size(), 1) << "what follows is no archive";
}

TEST_F(TarTest, KnowsItsContentWhereverItLies) {
  const auto hash = [this](const std::string& content) { return open_tar(content).train->content_hash(); };
  const std::string notes = tar_entry({"notes.txt", "x"}), red = tar_entry({"a/1.png", kRed});
  const uint64_t before = hash(red + tar_entry({"b/2.png", kGreen}) + kEnd);
  EXPECT_EQ(hash(notes + red + tar_entry({"b/2.png", kGreen}) + kEnd), before);
  EXPECT_NE(hash(red + tar_entry({"b/2.png", kBlue}) + kEnd), before);
  EXPECT_NE(hash(red + tar_entry({"b/3.png", kGreen}) + kEnd), before);
}

TEST_F(TarTest, RefusesDamagedArchives) {
  const std::string one = tar_entry({"a/1.png", kRed});
  EXPECT_THAT(refusal(""), HasSubstr("too short for a tar archive"));
  EXPECT_THAT(refusal(std::string(2000, 'x')), HasSubstr("not a tar archive; it is text"));
  EXPECT_THAT(refusal("version https://git-lfs.github.com/spec/v1\n"), HasSubstr("git lfs pull"));
  EXPECT_THAT(refusal(one), HasSubstr("its end mark is missing"));
  EXPECT_THAT(refusal(one.substr(0, 560)),
              HasSubstr("an entry of " + std::to_string(kRed.size()) + " bytes does not fit"));
  std::string damaged = one + one + kEnd;
  damaged[one.size() + 3] = '?';
  EXPECT_THAT(refusal(damaged), HasSubstr("a header's checksum is wrong"));
  EXPECT_THAT(
      refusal(std::string("\x1f\x8b\x08\0", 4) + std::string(1000, 'x')),
      AllOf(HasSubstr("a compressed archive"), HasSubstr("mv images.tar images.tar.gz && gunzip images.tar.gz")));
}

TEST_F(TarTest, RefusesAbsurdSizes) {
  const std::string huge = std::string("\x80\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", 12);
  const std::string large = std::string("\x80\0\0\0\0\x7f\xff\xff\xff\xff\xff\xff", 12);
  const std::string negative(12, '\xff');
  EXPECT_THAT(refusal(tar_entry({.name = "a/1.png", .size_field = huge}) + kEnd), HasSubstr("size is not a number"));
  EXPECT_THAT(refusal(tar_entry({.name = "a/1.png", .size_field = large}) + kEnd), HasSubstr("does not fit"));
  EXPECT_THAT(refusal(tar_entry({.name = "a/1.png", .size_field = negative}) + kEnd),
              HasSubstr("size is not a number"));
  EXPECT_THAT(refusal(tar_entry({.name = "a/1.png", .size_field = "77777777777"}) + kEnd), HasSubstr("does not fit"));
  EXPECT_THAT(refusal(tar_entry({.name = "a/1.png", .size_field = "12x"}) + kEnd), HasSubstr("size is not a number"));
  EXPECT_THAT(refusal(pax("19 size=9999999999\n") + tar_entry({"a/1.png", kRed}) + kEnd), HasSubstr("does not fit"));
  EXPECT_THAT(refusal(pax("12 size=-10\n") + tar_entry({"a/1.png", kRed}) + kEnd), HasSubstr("size is not a number"));
}

TEST_F(TarTest, RefusesUnreadablePaxHeaders) {
  for (const char* records : {"x", "999 path=a\n", "5 a=\n6 b=", "0 \n", "10 path\n\n\n", "18446744073709551616 a=b\n"})
    EXPECT_THAT(refusal(pax(records) + tar_entry({"a/1.png", kRed}) + kEnd), HasSubstr("a pax header is not readable"))
        << records;
}

TEST_F(TarTest, RefusesUnsafeNames) {
  for (const char* name : {"../a/1.png", "a/../../1.png", "/etc/1.png", "a/..png/../1.png"})
    EXPECT_THAT(refusal(tar_entry({name, kRed}) + kEnd), HasSubstr("an unsafe name")) << name;
  EXPECT_THAT(refusal(tar_entry({"a/\x1b[2J.png", kRed}) + kEnd), HasSubstr("control characters"));
  EXPECT_EQ(open_tar(tar_entry({"a/..b..png", kRed}) + kEnd).train->size(), 1);
}

TEST_F(TarTest, RefusesLinksAndSparseFiles) {
  EXPECT_THAT(refusal(tar_entry({"a/1.png", "", '1'}) + kEnd), HasSubstr("a link instead of an image"));
  EXPECT_THAT(refusal(tar_entry({"a/1.png", "", '2'}) + kEnd), HasSubstr("--dereference"));
  EXPECT_THAT(refusal(tar_entry({"a/1.png", kRed, 'S'}) + kEnd), HasSubstr("a sparse file"));
  EXPECT_THAT(refusal(pax("22 GNU.sparse.major=1\n") + tar_entry({"a/1.png", kRed}) + kEnd),
              HasSubstr("a sparse file"));
}

TEST_F(TarTest, RefusesWhatHasNoClasses) {
  EXPECT_THAT(refusal(kEnd), HasSubstr("no images"));
  EXPECT_THAT(refusal(tar_entry({"a/1.txt", "x"}) + kEnd), HasSubstr("no images"));
  EXPECT_THAT(refusal(tar_entry({"1.png", kRed}) + kEnd), HasSubstr("outside of class folders"));
  EXPECT_THAT(refusal(tar_entry({"train/a/1.png", kRed}) + tar_entry({"val/a/1.png", kRed}) + kEnd),
              HasSubstr("prefix: train"));
  EXPECT_THAT(refusal(tar_entry({"a/1.png", kRed}) + kEnd, ", prefix: test"),
              HasSubstr("images.tar: test/: no images"));
}

TEST_F(TarTest, IgnoresHiddenEntries) {
  const std::string tar = tar_entry({"./a/1.png", kRed}) + tar_entry({"./a/._1.png", "AppleDouble"}) +
                          tar_entry({"./.ipynb_checkpoints/1.png", kGreen}) + tar_entry({"./b/2.png", kBlue}) + kEnd;
  EXPECT_EQ(open_tar(tar).train->describe(), "2 images 4x4x3, 2 classes");
  const std::string plain = tar_entry({"a/1.png", kRed}) + tar_entry({".a/1.png", kGreen}) + kEnd;
  EXPECT_EQ(open_tar(plain).train->describe(), "1 image 4x4x3, 1 class");
}

TEST_F(TarTest, ReadsWebDatasetLabels) {
  const std::string tar = tar_entry({"b/7.cls", "2\n"}) + tar_entry({"b/7.jpg.txt", "x"}) +
                          tar_entry({"b/7.png", kRed}) + tar_entry({"8.seg.png", kGreen}) +
                          tar_entry({"8.png", kBlue}) + tar_entry({"8.cls", " 10"}) + kEnd;
  const std::string val = write("val.tar", tar_entry({"1.png", kRed}) + tar_entry({"1.cls", "3"}) + kEnd);
  const data::DatasetSplits datasets = open_tar(tar, "", ", val: {path: " + val + "}");
  EXPECT_EQ(datasets.train->describe(), "2 images 4x4x3, 11 classes");
  EXPECT_EQ(first_byte(*datasets.train, 0, 2), 255);
  EXPECT_EQ(read(*datasets.train, 0).target[0], 10);
  EXPECT_EQ(read(*datasets.train, 1).target[0], 2);
  EXPECT_EQ(datasets.val->layout().outputs, 11);
  EXPECT_EQ(read(*datasets.val, 0).target[0], 3);
  write("val.tar", tar_entry({"1.png", kRed}) + tar_entry({"1.cls", "11"}) + kEnd);
  EXPECT_THAT(error_of([&] { open_tar(tar, "", ", val: {path: " + val + "}"); }),
              HasSubstr("class 11 is not in the training data, which has 11 classes"));
}

TEST_F(TarTest, ReadsLabelsAndImagesInUpperCase) {
  const data::DatasetSplits datasets = open_tar(tar_entry({"A.PNG", kRed}) + tar_entry({"A.CLS", "1"}) + kEnd);
  ASSERT_EQ(datasets.train->size(), 1);
  EXPECT_EQ(read(*datasets.train, 0).target[0], 1);
}

TEST_F(TarTest, EndsNamesOfSamplesAtTheirFirstDot) {
  const std::string sample = tar_entry({"8.png", kBlue}) + tar_entry({"8.cls", "1"});
  const std::string parts = tar_entry({"8.seg.png", kRed}) + tar_entry({"8.seg.cls", "7"});
  const data::DatasetSplits datasets = open_tar(parts + sample + parts + kEnd);
  ASSERT_EQ(datasets.train->size(), 1);
  EXPECT_EQ(read(*datasets.train, 0).target[0], 1);
  const std::string dotted = tar_entry({"n01.v1.png", kRed}) + tar_entry({"n01.v1.cls", "1"});
  for (const std::string& others : {std::string(), sample})
    EXPECT_THAT(refusal(others + dotted + kEnd),
                AllOf(HasSubstr("n01.v1.png: an image without a label: there is no n01.cls"),
                      HasSubstr("in WebDataset a sample's name ends at its first dot")));
}

TEST_F(TarTest, WarnsOfWhatItLeavesOut) {
  const std::string labelled = tar_entry({"1.png", kRed}) + tar_entry({"1.cls", "0"});
  const auto warning_with = [&](const std::string& more) {
    return warning_of([&] { EXPECT_EQ(open_tar(labelled + more + kEnd).train->size(), 1); });
  };
  const std::string tar = "warning: " + path("images.tar");
  EXPECT_EQ(warning_with(tar_entry({"3.cls", "1"}) + tar_entry({"2.cls", "1"})),
            tar + ": left out 2 labels without an image, such as 2.cls\n");
  EXPECT_EQ(warning_with(tar_entry({"1.seg.webp", "x"})), "") << "another part of a sample that is read";
  EXPECT_EQ(warning_with(tar_entry({"2.cls", "1"}) + tar_entry({"2.webp", "x"})),
            tar + ": left out 1 image named as neither JPEG nor PNG: 2.webp\n" + tar +
                ": left out 1 label without an image: 2.cls\n");
  EXPECT_EQ(warning_of([&] {
              open_tar(tar_entry({"a/1.png", kRed}) + tar_entry({"a/x.y.gif", "x"}) + kEnd);
            }),
            tar + ": left out 1 image named as neither JPEG nor PNG: a/x.y.gif\n");
}

TEST_F(TarTest, WarnsOfClassFoldersWithoutImages) {
  const std::string cat = tar_entry({"train/cat/1.png", kRed}), folder = tar_entry({"train/", "", '5'});
  const std::string empty = tar_entry({"train/emu", "", '5'}), webp = tar_entry({"train/fox/1.webp", "x"});
  const auto warning_with = [&](const std::string& more, const std::string& options = ", prefix: train") {
    return warning_of([&] { open_tar(folder + cat + more + kEnd, options); });
  };
  EXPECT_EQ(warning_with(""), "");
  EXPECT_EQ(warning_with(tar_entry({"train/cat/", "", '5'}) + tar_entry({"test/dog/", "", '5'})), "");
  EXPECT_THAT(warning_with(empty), HasSubstr("images.tar: train/: left out 1 folder without an image (.jpg, .jpeg, "
                                             ".png), which is no class: emu\n"));
  EXPECT_THAT(warning_with(webp + empty), AllOf(HasSubstr("left out 2 folders without an image"), HasSubstr("emu"),
                                                HasSubstr("named as neither JPEG nor PNG: fox/1.webp")));
  write("b.tar", tar_entry({"emu/1.png", kRed}) + kEnd);
  write("a.tar", tar_entry({"cat/1.png", kRed}) + tar_entry({"emu/", "", '5'}) + kEnd);
  EXPECT_EQ(warning_of([&] { open("{train: {path: '" + path("?.tar") + "', format: tar}}"); }), "");
}

TEST_F(TarTest, RefusesInvalidLabels) {
  for (const char* label : {"", "-1", "x", "1 2", "1.5", "99999999999999999999"})
    EXPECT_THAT(refusal(tar_entry({"1.png", kRed}) + tar_entry({"1.cls", label}) + kEnd),
                HasSubstr("images.tar: 1.cls: the class is not a number from 0 on"))
        << label;
  EXPECT_THAT(refusal(tar_entry({"1.png", kRed}) + tar_entry({"1.cls", std::string(100000, ' ')}) + kEnd),
              HasSubstr("not a number"));
  EXPECT_THAT(refusal(tar_entry({"1.png", kRed}) + tar_entry({"1.cls", "2000000000"}) + kEnd),
              HasSubstr("class 2000000000; at most 1,048,576"));
  EXPECT_THAT(refusal(tar_entry({"1.cls", "1"}) + kEnd), HasSubstr("no images"));
  EXPECT_THAT(refusal(tar_entry({"1.png", kRed}) + tar_entry({"2.cls", "1"}) + kEnd), HasSubstr("there is no 1.cls"));
  EXPECT_THAT(refusal(tar_entry({"1.png", kRed}) + kEnd), HasSubstr("1.cls beside it"));
}

TEST_F(TarTest, ReadsSeveralFiles) {
  const auto labelled = [](const std::string& colour, const std::string& label) {
    return tar_entry({"1.png", colour}) + tar_entry({"1.cls", label}) + kEnd;
  };
  write("s-08.tar", labelled(kRed, "0"));
  write("s-09.tar", labelled(kGreen, "1"));
  write("s-10.tar", labelled(kBlue, "2"));
  for (const char* pattern : {"s-{08..10}.tar", "s-*.tar", "s-{08,1*,09,08}.tar", "{s,s}-{0,1}[0-9].tar"}) {
    const data::DatasetSplits datasets = open("{train: {path: '" + path(pattern) + "', format: tar}}");
    ASSERT_EQ(datasets.train->size(), 3) << pattern;
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(first_byte(*datasets.train, i, static_cast<size_t>(i)), 255);
      EXPECT_EQ(read(*datasets.train, i).target[0], i);
    }
  }
  const auto refused = [&](const std::string& pattern) {
    return error_of([&] { open("{train: {path: '" + path(pattern) + "', format: tar}}"); });
  };
  EXPECT_THAT(refused("s-{08..11}.tar"), HasSubstr("s-11.tar"));
  EXPECT_THAT(refused("t-{8,9}*.tar"), HasSubstr("t-8*.tar: no file matches this pattern"));
  EXPECT_THAT(refused("s-{10..08}.tar"), HasSubstr("s-{10..08}.tar"));
  EXPECT_THAT(refused("s-{0..999999999}.tar"), HasSubstr("matches more than 100,000 files"));
  EXPECT_THAT(refused("{0..9999}{0..9999}"), HasSubstr("matches more than 100,000 files"));
  write("s-11.tar", tar_entry({"a/1.png", kRed}) + kEnd);
  EXPECT_THAT(refused("s-*.tar"), HasSubstr("s-11.tar: no .cls beside the images, unlike in earlier files"));
}

TEST_F(TarTest, NamesImageThatCannotBeRead) {
  const data::DatasetSplits datasets =
      open_tar(tar_entry({"a/1.png", kRed}) + tar_entry({"a/2.png", kRed.substr(0, kRed.size() / 2)}) + kEnd, "",
               ", image: {size: 4}");
  EXPECT_THAT(error_of([&] { read(*datasets.train, 1); }), HasSubstr("images.tar: a/2.png: damaged PNG"));
  std::filesystem::resize_file(path("images.tar"), 700);
  EXPECT_THAT(error_of([&] { read(*datasets.train, 1); }), HasSubstr("cut off"));
}

TEST(RealTar, ReadsCifar10) {
  GPUTRAIN_NEED_DATA(file, "cifar10-jpg.tar");
  const data::DatasetSplits datasets =
      open("{train: {path: " + file + ", format: tar, prefix: train}, val: {prefix: test}}");
  EXPECT_EQ(datasets.train->describe(), "50,000 images 32x32x3, 10 classes");
  EXPECT_EQ(datasets.val->describe(), "10,000 images 32x32x3, 10 classes");
  std::vector<int> counts(10);
  for (int64_t i = 0; i < datasets.val->size(); i += 10)
    ++counts[static_cast<size_t>(read(*datasets.val, i).target[0])];
  for (const int count : counts) EXPECT_EQ(count, 100);
}

TEST(RealTar, DecodesEveryImagenetSample) {
  GPUTRAIN_NEED_DATA(file, "imagenet-sample-250.tar");
  const data::DatasetSplits datasets = open(
      "{train: {path: " + file + ", format: tar}, image: {size: 224, augment: {random_resized_crop: [0.08, 1.0]}}}");
  EXPECT_EQ(datasets.train->describe(), "250 images 224x224x3, 250 classes");
  for (int64_t i = 0; i < 250; ++i) {
    EXPECT_EQ(read(*datasets.train, i, {.augment = i % 2 == 0}).target[0], i);
  }
  EXPECT_THAT(error_of([&file] { open("{train: {path: " + file + ", format: tar}}"); }, ExitCode::usage),
              HasSubstr("the images have different sizes"));
}

}  // namespace
}  // namespace gputrain::datasets
