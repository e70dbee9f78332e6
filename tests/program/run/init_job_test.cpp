// `gputrain init`: jobs for data that it looks at.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/data/png.hpp"
#include "support/program.hpp"

namespace gputrain::testing_support {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// Images of two classes; `growth`: by how much each is larger than the one before; `widths`: width in heights.
void write_classes(const fs::path& folder, int64_t side, int64_t growth, int64_t widths = 1) {
  for (const char* name : {"cat", "dog"}) {
    fs::create_directories(folder / name);
    for (int64_t i = 0; i < 10; ++i) {
      const int64_t length = side + i * growth;
      const std::vector<uint8_t> pixels(static_cast<size_t>(3 * length * length * widths),
                                        static_cast<uint8_t>(20 * i));
      std::ofstream(folder / name / (std::to_string(i) + ".png"), std::ios::binary)
          << data::png_of({.pixels = pixels.data(), .width = widths * length, .height = length, .channels = 3});
    }
  }
}

/// The job that is written, which `run --dry-run` must accept.
std::string job_for(const TemporaryFolder& folder, const std::string& data) {
  const std::string job = folder / "job.yaml";
  fs::remove(job);
  const Result result = gputrain({"init", data, "--output", job});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  const Result dry = gputrain({"run", job, "--dry-run", "--output-dir", folder / "run"});
  EXPECT_EQ(dry.exit_code, 0) << dry.out << dry.err;
  return read_file(job);
}

TEST(InitVerb, WritesJobsThatADryRunAccepts) {
  const TemporaryFolder folder;
  write_classes(folder / "small/train", 32, 0);
  write_classes(folder / "small/val", 32, 0);
  EXPECT_THAT(job_for(folder, folder / "small"),
              AllOf(HasSubstr("20 images 32x32x3, 2 classes"), HasSubstr("stem: cifar"),
                    HasSubstr("random_crop_padding: 4"), HasSubstr("/small/val'}"), HasSubstr("name: small")));
  write_classes(folder / "it's large", 80, 3);  // a name that YAML would not take as it is
  EXPECT_THAT(job_for(folder, folder / "it's large"),
              AllOf(HasSubstr("resnet50"), HasSubstr("size: 224"), HasSubstr("split: 10%")));
  write_classes(folder / "wide", 80, 0, 3);
  EXPECT_THAT(job_for(folder, folder / "wide"), AllOf(HasSubstr("20 images 80x240x3"), HasSubstr("size: [80, 240]")));
  write_classes(folder / "strips", 16, 0, 2);
  EXPECT_THAT(job_for(folder, folder / "strips"), AllOf(HasSubstr("20 images 16x32x3"), HasSubstr("stem: cifar")));
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "to be or not to be, that is the question\n";
  EXPECT_THAT(job_for(folder, folder.write("words.txt", text)), AllOf(HasSubstr("gpt"), HasSubstr("format: text")));
}

TEST(InitVerb, FindsTheRolesInATarAndImagesInAList) {
  const TemporaryFolder folder;
  write_classes(folder / "all/train", 32, 0);
  write_classes(folder / "all/test", 32, 0);
  const std::string tar = folder / "all.tar";
  ASSERT_EQ(std::system(("tar -cf " + tar + " -C " + (folder / "all") + " train test").c_str()), 0);
  EXPECT_THAT(job_for(folder, tar),
              AllOf(HasSubstr("prefix: 'train'"), HasSubstr("prefix: 'test'"), HasSubstr("2 classes")));
  std::string list = "image,label\n";
  for (const char* name : {"cat", "dog"})
    for (int i = 0; i < 10; ++i)
      list += std::string("all/train/") + name + "/" + std::to_string(i) + ".png," + name + "\n";
  EXPECT_THAT(job_for(folder, folder.write("list.csv", list)), AllOf(HasSubstr("format: csv"), HasSubstr("2 classes")));
}

TEST(InitVerb, ReadsListsAndRolesAsRunsDo) {
  const TemporaryFolder folder;
  write_classes(folder / "pics/Training", 32, 0);
  write_classes(folder / "pics/Testing", 32, 0);
  EXPECT_THAT(job_for(folder, folder / "pics"),
              AllOf(HasSubstr("/pics/Training'"), HasSubstr("/pics/Testing'}"), HasSubstr("2 classes")));
  std::string quoted = "\"\",\"file\",\"class\"\n", list;
  for (const char* name : {"cat", "dog"}) {
    for (int i = 0; i < 10; ++i) {
      const std::string image = std::string("pics/Training/") + name + "/" + std::to_string(i) + ".png";
      quoted += "\"0\",\"" + image + "\",\"" + name + "\"\n";
      list += (list.empty() ? "[" : ", ") + ("{\"image\": \"" + image + "\", \"label\": \"" + name + "\"}");
    }
  }
  EXPECT_THAT(job_for(folder, folder.write("quoted.csv", quoted)),
              AllOf(HasSubstr("format: csv"), HasSubstr("columns: {image: 'file', label: 'class'}")));
  EXPECT_THAT(job_for(folder, folder.write("list.json", list + "]")), HasSubstr("format: jsonl"));
  fs::create_directories(folder / "lists");
  folder.write("lists/train.json", list + "]");
  folder.write("lists/valid_set.json", list + "]");
  EXPECT_THAT(job_for(folder, folder / "lists"),
              AllOf(HasSubstr("/lists/train.json'"), HasSubstr("val: {path:"), HasSubstr("valid_set.json'}")));
  const std::string tar = folder / "pics.TAR";
  ASSERT_EQ(std::system(("tar -cf " + tar + " -C " + (folder / "pics") + " Training Testing").c_str()), 0);
  EXPECT_THAT(job_for(folder, tar), AllOf(HasSubstr("prefix: 'Training'"), HasSubstr("prefix: 'Testing'")));
}

TEST(InitVerb, SaysWhatItDoesNotKnowAndOverwritesNothing) {
  const TemporaryFolder folder;
  const std::string there = folder.write("job.yaml", "mine");
  EXPECT_EQ(gputrain({"init", folder / "nowhere", "--output", folder / "a.yaml"}).exit_code, 3);
  const Result table = gputrain({"init", folder.write("rows.csv", "a,b\n1,2\n"), "--output", folder / "a.yaml"});
  EXPECT_EQ(table.exit_code, 2);
  EXPECT_THAT(table.err, HasSubstr("configs/bert_sst2.yaml"));
  const Result exists = gputrain({"init", folder.write("t.txt", "text"), "--output", there});
  EXPECT_EQ(exists.exit_code, 2);
  EXPECT_EQ(read_file(there), "mine");
  fs::create_directories(folder / "pixels/images");
  fs::create_directories(folder / "pixels/masks");
  const Result masks = gputrain({"init", folder / "pixels", "--output", folder / "a.yaml"});
  EXPECT_EQ(masks.exit_code, 2);
  EXPECT_THAT(masks.err, HasSubstr("configs/segmentation.yaml"));
  fs::create_directories(folder / "empty");
  EXPECT_NE(gputrain({"init", folder / "empty", "--output", folder / "a.yaml"}).exit_code, 0);
  EXPECT_FALSE(fs::exists(folder / "a.yaml"));
  EXPECT_FALSE(fs::exists(folder / "a.yaml.part"));
}

}  // namespace
}  // namespace gputrain::testing_support
