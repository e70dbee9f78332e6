#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "datasets/opened.hpp"
#include "datasets/tiny_images.hpp"
#include "gputrain/data/loader.hpp"
#include "gputrain/datasets/given_images.hpp"
#include "gputrain/datasets/roles.hpp"

namespace gputrain::datasets {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class ImageFolderTest : public FolderTest {
 protected:
  data::DatasetSplits open_folder(const std::string& more = "", const std::string& options = "") const {
    return open("{train: {path: " + folder_.string() + ", format: imagefolder" + options + "}" + more + "}");
  }
};

TEST_F(ImageFolderTest, NumbersClassesInNameOrder) {
  write("train/b/deep/2.png", png_of({9, 0, 0}));
  write("train/a/1.png", png_of({8, 0, 0}));
  write("train/a/readme.txt", "not an image");
  write("train/.cache/3.png", "hidden");
  write("val/b/4.png", png_of({7, 0, 0}));
  const data::DatasetSplits datasets = open_folder(", val: {prefix: val}", ", prefix: train");
  EXPECT_EQ(datasets.train->describe(), "2 images 4x4x3, 2 classes");
  EXPECT_EQ(std::to_integer<int>(read(*datasets.train, 1).input[0]), 9);
  EXPECT_EQ(read(*datasets.val, 0).target[0], 1) << "numbered as in the training data";
  EXPECT_EQ(datasets.train->normalization()->mean[0], 0.485);
}

TEST_F(ImageFolderTest, FitsEvaluationImagesToTheirOwnSize) {
  for (int i = 0; i < 10; ++i) write("a/" + std::to_string(i) + ".png", png_of({1, 2, 3}, 40, 20));
  const data::DatasetSplits datasets =
      open_folder(", val: {split: 20%}, image: {size: 16, channels: 1, eval: {resize: 24, crop: 20}}");
  EXPECT_EQ(datasets.train->layout().input().sizes, (std::vector<int64_t>{16, 16, 1}));
  EXPECT_EQ(datasets.val->layout().input().sizes, (std::vector<int64_t>{20, 20, 1}));
  EXPECT_EQ(datasets.train->size(), 8);
  EXPECT_EQ(datasets.val->size(), 2);
  EXPECT_EQ(std::to_integer<int>(read(*datasets.val, 0).input[0]), 2);
}

TEST_F(ImageFolderTest, KnowsItsContentWhereverItLies) {
  for (const std::string root : {"one/", "two/"}) {
    write(root + "a/1.png", png_of({1, 2, 3}));
    write(root + "b/2.png", png_of({4, 5, 6}));
  }
  const auto hash = [this](const std::string& root) {
    return open_folder(", val: {split: 50%}", ", prefix: " + root).train->content_hash();
  };
  EXPECT_EQ(hash("one"), hash("two"));
  write("two/b/2.png", png_of({4, 5, 7}));
  EXPECT_NE(hash("one"), hash("two")) << "as long as before";
  write("two/b/2.png", png_of({4, 5, 6}));
  std::filesystem::rename(folder_ / "two/b/2.png", folder_ / "two/a/2.png");
  write("two/b/1.png", png_of({1, 2, 3}));
  std::filesystem::remove(folder_ / "two/a/1.png");
  EXPECT_NE(hash("one"), hash("two")) << "other labels";
}

TEST_F(ImageFolderTest, FollowsLinkedFolders) {
  write("store/1.png", png_of({1, 2, 3}));
  std::filesystem::create_directories(folder_ / "root");
  std::filesystem::create_directory_symlink(folder_ / "store", folder_ / "root" / "cat");
  EXPECT_EQ(open_folder("", ", prefix: root").train->size(), 1);
}

TEST_F(ImageFolderTest, ReportsWhatIsWrongWithAFolder) {
  EXPECT_THAT(error_of([this] { open_folder(); }), HasSubstr("no images"));
  write("a/1.png", png_of({1, 2, 3}));
  EXPECT_THAT(error_of([this] { open_folder("", ", prefix: trian"); }), HasSubstr("looked for a folder of images"));
  std::filesystem::create_directories(folder_ / "b");
  EXPECT_THAT(error_of([this] { open_folder(); }), HasSubstr("/b: the folder of this class is empty"));
  write("b/2.webp", "RIFF");
  EXPECT_THAT(error_of([this] { open_folder(); }), HasSubstr("/b: the folder of this class has no images"));
  write("b/2.png", png_of({1, 2, 3}));
  EXPECT_THAT(warning_of([this] { open_folder(); }),
              HasSubstr("left out 1 image named as neither JPEG nor PNG: b/2.webp"));
  for (const char* name : {"b/1.jpg.1", "b/1.jpg_large", "b/1.pjpeg", "b/1.PNG ", "b/0001"}) write(name, "x");
  for (const char* name : {"b/notes.txt", "b/1.json", "b/1.1", "README"}) write(name, "x");
  EXPECT_THAT(warning_of([this] { open_folder(); }), HasSubstr("left out 6 images"));
  write("3.png", png_of({1, 2, 3}));
  EXPECT_THAT(error_of([this] { open_folder(); }), HasSubstr("3.png is not in a class folder"));
}

TEST_F(ImageFolderTest, RefusesRolesAsClasses) {
  for (const char* name : {"Training/a/1.png", "Testing/a/1.png", "valid_set/a/1.png"}) write(name, png_of({1, 2, 3}));
  EXPECT_THAT(error_of([this] { open_folder(); }),
              AllOf(HasSubstr("the folder Training would become a class"), HasSubstr("prefix: Training")));
  write("notes/1.png", png_of({1, 2, 3}));
  EXPECT_THAT(
      warning_of([this] { open_folder(); }),
      AllOf(HasSubstr("named like parts of the data: Testing, Training, valid_set"), HasSubstr("prefix: Training")));
}

TEST_F(ImageFolderTest, TakesATrainForAVehicle) {
  for (const char* name : {"train/1.png", "ship/1.png"}) write(name, png_of({1, 2, 3}));
  EXPECT_EQ(warning_of([this] { EXPECT_EQ(open_folder().train->class_names().size(), 2U); }), "");
  for (const char* name : {"dev/b/1.png", "dev/c/1.png"}) write(name, png_of({1, 2, 3}));
  EXPECT_THAT(warning_of([this] { open_folder(); }), HasSubstr("named like parts of the data: dev, train"));
}

TEST(Roles, AreTheUsualNamesInAnyCase) {
  for (const char* name : {"train", "TRAIN", "Training", "train_set", "trainset", "Train-Data", "train2017",
                           "seg_train", "training images"})
    EXPECT_EQ(role_of_name(name), data::Split::train) << name;
  for (const char* name : {"val", "Valid", "validation", "dev", "eval", "val_set", "Validation-Data"})
    EXPECT_EQ(role_of_name(name), data::Split::val) << name;
  for (const char* name : {"test", "Testing", "test_set", "testdata", "test2017", "TestImages"})
    EXPECT_EQ(role_of_name(name), data::Split::test) << name;
  for (const char* name : {"", "cat", "train_station", "trainer", "tester", "set", "data", "images", "42", "devil"})
    EXPECT_EQ(role_of_name(name), std::nullopt) << name;
}

TEST_F(ImageFolderTest, OfImagesToPredictTellsWhatIsLeftOut) {
  for (const char* name : {"1.png", "a/2.PNG", "4"}) write(name, png_of({1, 2, 3}));
  for (const char* name : {"3.webp", "LICENSE", "notes.txt"}) write(name, "x");
  std::vector<std::string> files;
  EXPECT_THAT(warning_of([&] { files = image_files({folder_.string()}).files; }), HasSubstr("left out 2 images"));
  EXPECT_EQ(files.size(), 2U);
  EXPECT_EQ(image_files({path("4")}).files, std::vector{path("4")});
  EXPECT_THAT(error_of([&] { image_files({path("3.webp")}); }), HasSubstr("neither a JPEG nor a PNG image"));
}

TEST_F(ImageFolderTest, IgnoresHiddenFolders) {
  write("a/1.png", png_of({1, 2, 3}));
  std::filesystem::create_directories(folder_ / ".ipynb_checkpoints");
  EXPECT_EQ(open_folder().train->size(), 1);
}

TEST_F(ImageFolderTest, WarnsOfLinksToNowhere) {
  write("a/1.png", png_of({1, 2, 3}));
  for (const char* name : {"3.png", "2.png", "more"}) std::filesystem::create_symlink("/no/disk", folder_ / "a" / name);
  std::filesystem::create_symlink("1.png", folder_ / "a" / "good.png");
  EXPECT_EQ(warning_of([this] { EXPECT_EQ(open_folder().train->size(), 2); }),
            "warning: " + folder_.string() + ": left out 3 links to nowhere, such as a/2.png\n");
}

TEST_F(ImageFolderTest, RefusesClassThatIsALinkToNowhere) {
  for (const char* name : {"a/1.png", "c/1.png"}) write(name, png_of({1, 2, 3}));
  std::filesystem::create_directory_symlink("/no/disk", folder_ / "b");
  EXPECT_THAT(error_of([this] { open_folder(); }), HasSubstr("/b: a link to nowhere instead of the folder of a class"));
  std::filesystem::remove(folder_ / "b");
  std::filesystem::create_directory_symlink("b", folder_ / "b");
  EXPECT_THAT(error_of([this] { open_folder(); }), HasSubstr("/b: a link to nowhere"));
}

TEST_F(ImageFolderTest, ReadsEveryNameOfJpegByItsBytes) {
  for (const char* name : {"1.jfif", "2.JPE", "3.JPEG", "4.Jpg", "5.PNG"})
    write("a/" + std::string(name), png_of({9, 0, 0}));
  const data::DatasetSplits datasets = open_folder();
  ASSERT_EQ(datasets.train->size(), 5);
  for (int64_t i = 0; i < 5; ++i) EXPECT_EQ(std::to_integer<int>(read(*datasets.train, i).input[0]), 9);
}

TEST_F(ImageFolderTest, WarnsOnceOfImageOfAnotherSize) {
  for (int i = 100; i < 133; ++i) write("a/" + std::to_string(i) + ".png", png_of({1, 2, 3}));
  for (const char* name : {"a/101.png", "a/103.png"}) write(name, png_of({1, 2, 3}, 5, 7));
  const data::DatasetSplits whole = open_folder(), fitted = open_folder(", image: {size: 4}");
  const auto read_all = [](const data::Dataset& dataset) {
    for (int64_t i = 0; i < dataset.size(); ++i) read(dataset, i);
  };
  EXPECT_EQ(warning_of([&] { read_all(*whole.train); }),
            "warning: " + path("a/101.png") +
                " is 5 x 7, but `data.image.size: auto` found 4 x 4: it is resized and "
                "cropped, and so is every other image of another size\n");
  EXPECT_EQ(warning_of([&] { read_all(*whole.train); }), "");
  EXPECT_EQ(warning_of([&] { read_all(*fitted.train); }), "") << "the job says so";
}

TEST_F(ImageFolderTest, LeavesOutFoldersOfRuns) {
  for (const char* name : {"a/1.png", "b/2.png", "runs/older/job.resolved.yaml", "runs/older/samples/3.png",
                           "runs/own/logs/start_1/rank_0000.log", "mirror/run/4.png", "b/older/job.resolved.yaml"})
    write(name, png_of({1, 2, 3}));
  const auto open_with = [this](const std::vector<std::string>& own_folders) {
    return open("{train: {path: " + folder_.string() + ", format: imagefolder}}", 0, own_folders);
  };
  const data::DatasetSplits datasets = open_with({path("runs/own"), path("mirror/run")});
  EXPECT_EQ(datasets.train->class_names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(datasets.train->size(), 2);
  EXPECT_THAT(error_of([&] { open_with({path("runs/../")}); }, ExitCode::usage),
              HasSubstr("this folder of data is also the run's"));
}

TEST_F(ImageFolderTest, RefusesClassesUnknownToTraining) {
  write("train/a/1.png", png_of({1, 2, 3}));
  write("val/z/1.png", png_of({1, 2, 3}));
  EXPECT_THAT(error_of([this] { open_folder(", val: {prefix: val}", ", prefix: train"); }),
              AllOf(HasSubstr("the class 'z' is not in the training data"), HasSubstr("has 1 class: a")));
}

TEST_F(ImageFolderTest, WarnsOfEvaluationOnTrainingData) {
  for (const char* name : {"train/a/1.png", "val/a/1.png"}) write(name, png_of({1, 2, 3}));
  const auto warning_with = [this](const std::string& val) {
    return warning_of([&] { open_folder(", val: " + val, ", prefix: train"); });
  };
  EXPECT_THAT(warning_with("{}"), HasSubstr("data.val reads the same files as data.train"));
  EXPECT_EQ(warning_with("{prefix: val}"), "");
}

TEST_F(ImageFolderTest, SkipsFewBadImagesWhenAsked) {
  for (int i = 0; i < 20; ++i) write("a/" + std::to_string(i + 10) + ".png", png_of({1, 2, 3}));
  write("a/15.png", "not a png");
  const data::DatasetSplits datasets = open_folder(", image: {size: 4}");
  data::LoaderOptions options;
  options.partition = {.global_batch = 20, .micro_batch = 20};
  options.shuffle = false;
  options.num_workers = 2;
  EXPECT_THAT(error_of([&] { data::Loader(datasets.train, options).next_step(); }),
              HasSubstr("a/15.png: neither JPEG nor PNG; it is text (sample 5)"));
  options.max_bad_fraction = 0.05;
  EXPECT_EQ(data::Loader(datasets.train, options).next_step().weight, 19);
}

TEST_F(ImageFolderTest, TakesSizeFromReadableImages) {
  write("a/1.png", "not a png");
  EXPECT_THAT(error_of([this] { open_folder(); }), HasSubstr("a/1.png: neither JPEG nor PNG"));
  write("a/2.png", png_of({1, 2, 3}));
  EXPECT_THAT(open_folder().train->describe(), HasSubstr("2 images 4x4x3"));
}

}  // namespace
}  // namespace gputrain::datasets
