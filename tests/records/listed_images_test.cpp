// Images that a table or JSON lines list, each with a class, a set of classes or numbers.
#include <cmath>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "datasets/opened.hpp"
#include "datasets/sample_of.hpp"
#include "datasets/tiny_images.hpp"
#include "gputrain/data/loader.hpp"

namespace gputrain::records {
using namespace datasets;
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;

data::DatasetSplits images_for(Target target, const std::string& section) {
  const config::Loaded job =
      config::load(config::schema_of<JobWithData>(), {.file = "job.yaml", .text = "data: " + section});
  return data::open_datasets(job.as<JobWithData>().data, {.field = kImage, .target = target}, {});
}

class ListedImagesTest : public FolderTest {
 protected:
  void SetUp() override {
    FolderTest::SetUp();
    write("a.png", png_of({10, 20, 30}));
    write("more/b.png", png_of({40, 50, 60}));
    write("c.png", png_of({70, 80, 90}));
  }
  std::string section(const std::string& name, const std::string& image = "", const std::string& more = "") const {
    return "{train: {path: " + path(name) + ", format: " + name.substr(name.rfind('.') + 1) + "}, image: {" + image +
           "}" + more + "}";
  }
  std::string refusal(Target target, const std::string& table, const std::string& image = "",
                      ExitCode code = ExitCode::data) const {
    write("list.csv", table);
    return error_of([&] { images_for(target, section("list.csv", image)); }, code);
  }
};

TEST_F(ListedImagesTest, TellColumnsThatNothingReads) {
  write("list.csv", "id,image,label,bbox\n7,a.png,x,1 2 3 4\n8,c.png,y,\n");
  EXPECT_EQ(images_for(Target::label, section("list.csv")).train->describe(),
            "2 images 4x4x3, 2 classes; not read: bbox (1 of 2), id");
  write("list.jsonl", R"({"image": "a.png", "label": 0.5, "caption": "a"})"
                      "\n"
                      R"({"image": "c.png", "label": 1})");
  EXPECT_EQ(images_for(Target::number, section("list.jsonl")).train->describe(),
            "2 images 4x4x3, 1 number each; not read: caption (1 of 2)");
}

TEST_F(ListedImagesTest, HaveClassesInTheOrderOfTheirNames) {
  write("list.csv", "image,label\nmore/b.png,dog\n" + path("a.png") + ",cat\nc.png,dog\n");
  const auto data = images_for(Target::label, section("list.csv")).train;
  EXPECT_THAT(data->class_names(), ElementsAre("cat", "dog"));
  EXPECT_EQ(data->layout().outputs, 2);
  EXPECT_EQ(data->describe(), "3 images 4x4x3, 2 classes");
  const auto first = sample_of(*data, 0);
  EXPECT_THAT(first.at("target"), ElementsAre(1));
  EXPECT_THAT(sample_of(*data, 1).at("target"), ElementsAre(0));
  EXPECT_EQ(data->class_of(2), 1);
  EXPECT_EQ(data->sample_name(0), "more/b.png");
  std::vector<uint8_t> pixels(48);
  int64_t target = -1;
  const data::BatchMemory memory{
      {.values = reinterpret_cast<std::byte*>(pixels.data()), .bytes = 48, .element_bytes = 1},
      {.values = reinterpret_cast<std::byte*>(&target), .bytes = 8, .element_bytes = 8}};
  data->read(0, {}, data::SampleRow(memory, 0));
  EXPECT_THAT(std::vector(pixels.begin(), pixels.begin() + 3), ElementsAre(40, 50, 60));
}

TEST_F(ListedImagesTest, HaveNumbersFromOneColumnOrSeveral) {
  write("list.tsv", "file\tage\tsize\na.png\t7\t-0.5\nc.png\t9.25\t1e3\n");
  const auto several = images_for(Target::number, section("list.tsv", "columns: {image: file, label: [size, age]}"));
  EXPECT_THAT(several.train->class_names(), ElementsAre("size", "age"));
  EXPECT_THAT(sample_of(*several.train, 0).at("target"), ElementsAre(-0.5, 7));
  EXPECT_THAT(sample_of(*several.train, 1).at("target"), ElementsAre(1000, 9.25));
  EXPECT_EQ(several.train->describe(), "2 images 4x4x3, 2 numbers each");
  EXPECT_EQ(several.train->class_of(0), std::nullopt);
  write("list.jsonl", "{\"image\": \"a.png\", \"label\": [1, 2.5]}\n{\"image\": \"c.png\", \"label\": [3, \"4\"]}\n");
  const auto list = images_for(Target::number, section("list.jsonl"));
  EXPECT_THAT(list.train->class_names(), ElementsAre("label_0", "label_1"));
  EXPECT_THAT(sample_of(*list.train, 1).at("target"), ElementsAre(3, 4));
  const uint64_t hash = list.train->content_hash();
  write("list.jsonl", "{\"image\": \"a.png\", \"label\": [1, 2.5]}\n{\"image\": \"c.png\", \"label\": [3, 5]}\n");
  EXPECT_NE(images_for(Target::number, section("list.jsonl")).train->content_hash(), hash);
}

TEST_F(ListedImagesTest, HaveSetsOfClasses) {
  write("list.csv", "image,label\na.png,red|small\nc.png,red\nmore/b.png,\n");
  const auto data = images_for(Target::labels, section("list.csv")).train;
  EXPECT_THAT(data->class_names(), ElementsAre("red", "small"));
  EXPECT_THAT(sample_of(*data, 0).at("target"), ElementsAre(1, 1));
  EXPECT_THAT(sample_of(*data, 1).at("target"), ElementsAre(1, 0));
  EXPECT_THAT(sample_of(*data, 2).at("target"), ElementsAre(0, 0));
}

TEST_F(ListedImagesTest, OfValidationHaveTheClassesOfTraining) {
  write("list.csv", "image,label\na.png,cat\nc.png,dog\n");
  write("val.csv", "image,label\nmore/b.png,dog\n");
  const std::string with_val = ", val: {path: " + path("val.csv") + "}";
  EXPECT_THAT(sample_of(*images_for(Target::label, section("list.csv", "", with_val)).val, 0).at("target"),
              ElementsAre(1));
  write("val.csv", "image,label\nmore/b.png,cow\n");
  EXPECT_THAT(error_of([&] { images_for(Target::label, section("list.csv", "", with_val)); }),
              AllOf(HasSubstr("'cow' is not one of the training data: cat, dog"), HasSubstr("val.csv:2")));
}

TEST_F(ListedImagesTest, SayWhatIsWrongBeforeTraining) {
  EXPECT_THAT(refusal(Target::label, "image,class\na.png,cat\n"),
              AllOf(HasSubstr("no 'label'; there are image, class"), HasSubstr("data.image.columns")));
  EXPECT_THAT(refusal(Target::label, "image,label\na.png,0.5\n"), testing::IsEmpty());  // a name
  EXPECT_THAT(refusal(Target::number, "image,label\na.png,cat\n"), HasSubstr("no number"));
  EXPECT_THAT(
      refusal(Target::label, "image,label\nnowhere/a.png,cat\n"),
      AllOf(HasSubstr("nowhere/a.png does not exist"), HasSubstr("list.csv:2"), HasSubstr("folder of the list")));
  EXPECT_THAT(refusal(Target::label, "image,label,more\na.png,1,1\n", "columns: {label: [label, more]}"),
              AllOf(HasSubstr("2 of the columns of classes are 1"), HasSubstr("regression")));
  write("null.jsonl", "{\"image\": \"a.png\", \"label\": null}\n");
  EXPECT_THAT(error_of([&] { images_for(Target::label, section("null.jsonl")); }), HasSubstr("'label' is null"));
  write("list.jsonl", "{\"image\": \"a.png\", \"label\": [1, 2]}\n{\"image\": \"c.png\", \"label\": [1]}\n");
  EXPECT_THAT(error_of([&] { images_for(Target::number, section("list.jsonl")); }), HasSubstr("1 number instead of 2"));
}

TEST_F(ListedImagesTest, AreFoundAsPeopleNameThem) {
  write("lists/list.csv", "image,label\na.png,1\nmore\\b.png,2\nmore/b,3\n..\\c,4\n" + path("c.png") + ",5\n");
  const auto data = images_for(Target::label, section("lists/list.csv")).train;
  ASSERT_EQ(data->size(), 5);
  std::vector<std::string> names;
  for (int64_t i = 0; i < 5; ++i) names.push_back(data->sample_name(i));
  EXPECT_THAT(names, ElementsAre("../a.png", "../more/b.png", "../more/b.png", "../c.png", path("c.png")));
  EXPECT_EQ(sample_of(*data, 1), sample_of(*data, 1));
  write("more/b.jpg", "");
  EXPECT_THAT(refusal(Target::label, "image,label\nmore/b,cat\n"), AllOf(HasSubstr("b.jpg"), HasSubstr("b.png")));
  EXPECT_THAT(refusal(Target::label, "image,label\nhttps://x.org/a.png,cat\n"), HasSubstr("download them first"));
}

TEST_F(ListedImagesTest, ThatAreMissingAreCountedAtTheStart) {
  const std::string table = "image,label\na.png,1\nx/1.png,2\nc.png,1\nx/2.png,2\nx/3.png,1\nx/4.png,2\nx/5.png,2\n";
  EXPECT_THAT(refusal(Target::label, table),
              AllOf(HasSubstr("x/1.png does not exist"), HasSubstr("nor do x/2.png, x/3.png, x/4.png and 1 more image"),
                    HasSubstr("5 records of 7"), HasSubstr("list.csv:3")));
  write("list.csv", "image,label\na.png,1\nx/1.png,7\nc.png,2\n");
  data::DatasetSplits data;
  EXPECT_THAT(
      warning_of([&] { data = images_for(Target::label, section("list.csv", "size: 4", ", max_bad_fraction: 0.4")); }),
      HasSubstr("1 record of 3"));
  EXPECT_THAT(data.train->class_names(), ElementsAre("1", "2"));
}

TEST_F(ListedImagesTest, AreFoundByNumbersOfColumnsWithAndWithoutNames) {
  const std::string columns = "columns: {image: 1, label: 0}";
  for (const std::string names : {"", "class,file\n"}) {
    write("list.csv", names + "cat,a.png\ndog,c.png\n");
    std::shared_ptr<const data::Dataset> data;
    const std::string warning =
        warning_of([&] { data = images_for(Target::label, section("list.csv", columns)).train; });
    EXPECT_EQ(data->size(), 2);
    EXPECT_THAT(data->class_names(), ElementsAre("cat", "dog"));
    EXPECT_EQ(warning.find("first row names the columns") != std::string::npos, !names.empty());
  }
  EXPECT_THAT(refusal(Target::label, "a.png,cat\nc.png,dog\n"), HasSubstr("first row of a table names no columns"));
}

TEST_F(ListedImagesTest, HaveSetsAsPeopleWriteThem) {
  const std::string names = "columns: {label: [red, small, round]}";
  write("list.csv", "image,red,small,round\na.png,1,0,0\nc.png,0,1,0\nmore/b.png,True,1.0,false\n");
  const auto flags = images_for(Target::labels, section("list.csv", names)).train;
  EXPECT_THAT(flags->class_names(), ElementsAre("red", "round", "small"));
  EXPECT_THAT(sample_of(*flags, 2).at("target"), ElementsAre(1, 0, 1));
  write("list.csv", "image,red,small,round\na.png,1,0,0\nc.png,0,1,0\nmore/b.png,0,0,1\n");
  const auto single = images_for(Target::label, section("list.csv", names)).train;
  EXPECT_THAT(sample_of(*single, 1).at("target"), ElementsAre(2));
  write("list.jsonl", "{\"image\": \"a.png\", \"label\": [0, 1, 0]}\n{\"image\": \"c.png\", \"label\": [0, 1, 1]}\n");
  write("val.jsonl", "{\"image\": \"c.png\", \"label\": [1, 0, 1]}\n");
  const auto rows = images_for(Target::labels, section("list.jsonl", "", ", val: {path: " + path("val.jsonl") + "}"));
  EXPECT_THAT(rows.train->class_names(), ElementsAre("0", "1", "2"));
  EXPECT_THAT(sample_of(*rows.val, 0).at("target"), ElementsAre(1, 0, 1));
  write("list.csv", "image,label\na.png,\"red,small\"\nc.png,red\n");
  EXPECT_THAT(images_for(Target::labels, section("list.csv")).train->class_names(), ElementsAre("red", "small"));
}

TEST_F(ListedImagesTest, AreSkippedIfAFewAreBad) {
  write("list.csv", "image,label\na.png,1\nc.png,\nmore/b.png,3\n");
  const std::string some = ", max_bad_fraction: 0.4";
  data::DatasetSplits data;
  EXPECT_THAT(warning_of([&] { data = images_for(Target::number, section("list.csv", "size: 4", some)); }),
              HasSubstr("list.csv:3"));
  data::LoaderOptions options{
      .partition = {.global_batch = 3, .micro_batch = 3}, .shuffle = false, .augment = false, .max_bad_fraction = 0.4};
  data::Loader loader(data.train, options);
  const data::StepData step = loader.next_step();
  EXPECT_EQ(step.weight, 2);
  const at::Tensor targets = step.micro_batches[0].tensor(kTarget);
  EXPECT_EQ(targets[0][0].item<float>(), 1);
  EXPECT_TRUE(std::isnan(targets[1][0].item<float>()));
}

TEST_F(ListedImagesTest, HaveNoClassIfTheyAreBad) {
  write("list.csv", "image,label\na.png,1\nc.png,\nmore/b.png,2\n");
  const auto data = images_for(Target::label, section("list.csv", "size: 4", ", max_bad_fraction: 0.4")).train;
  EXPECT_EQ(data->class_of(1), std::nullopt);
  EXPECT_THAT(data::class_counts(*data), ElementsAre(1, 1));
}

TEST_F(ListedImagesTest, OfValidationHaveTheTargetsOfTraining) {
  write("list.csv", "image,label\na.png,1\nc.png,2\n");
  const std::string val = ", val: {format: synthetic, samples: 4, num_classes: 2}";
  EXPECT_THAT(error_of([&] { images_for(Target::number, section("list.csv", "size: 4", val)); }),
              AllOf(HasSubstr("its samples are images with a class each, of 2 classes"),
                    HasSubstr("those of data.train are images with 1 number each")));
  EXPECT_THAT(error_of([&] { images_for(Target::label, section("list.csv", "size: 4", val)); }), testing::IsEmpty());
}

TEST_F(ListedImagesTest, CountAsMuchAsTheirClasses) {
  write("list.csv", "image,label\na.png,a\nc.png,b\nmore/b.png,b\n");
  data::Loader loader(images_for(Target::label, section("list.csv")).train,
                      {.partition = {.global_batch = 2, .micro_batch = 1},
                       .shuffle = false,
                       .augment = false,
                       .class_weights = {0.25, 3}});
  EXPECT_THAT(loader.next_step().loss_weights, ElementsAre(0.25, 3));
  EXPECT_THAT(loader.next_step().loss_weights, ElementsAre(3, 0));
}

}  // namespace
}  // namespace gputrain::records
