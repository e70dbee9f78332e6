// Batches of ragged fields: counts, padding, and rows that only fill the shape.
#include <gtest/gtest.h>

#include "gputrain/data/loader.hpp"
#include "gputrain/data/preprocess.hpp"
#include "loaded_steps.hpp"

namespace gputrain::data {
namespace {

/// Sample i has i % 4 + 1 words, i % 3 boxes (none for every third), and one class.
class Sentences final : public Dataset {
 public:
  Sentences() {
    layout_.fields = {{.name = kTokens, .sizes = {6}, .fill = 9, .ragged = true},
                      {.name = kTarget, .fill = kIgnoreIndex, .target = true},
                      {.name = "boxes", .type = at::kFloat, .sizes = {3, 4}, .ragged = true, .target = true},
                      {.name = "weights", .type = at::kFloat, .sizes = {2}, .fill = 0.5}};
    layout_.outputs = 12;
  }
  int64_t size() const override { return 6; }
  const SampleLayout& layout() const override { return layout_; }
  std::string describe() const override { return "sentences"; }
  void read(int64_t index, const ReadContext&, const SampleRow& row) const override {
    if (index == broken) throw Error(ExitCode::data, {.what = "broken"});
    const int64_t words = index % 4 + 1, boxes = index % 3;
    for (int64_t i = 0; i < words; ++i) row.values<int64_t>(0)[i] = index;
    row.set_count(0, words);
    *row.values<int64_t>(1) = index;
    for (int64_t i = 0; i < boxes * 4; ++i) row.values<float>(2)[i] = static_cast<float>(index);
    row.set_count(2, boxes);
    row.values<float>(3)[0] = row.values<float>(3)[1] = 1;
  }
  int64_t broken = -1;

 private:
  SampleLayout layout_;
};

LoaderOptions in_order(int64_t batch, int workers) {
  LoaderOptions options = options_for(batch, batch, workers);
  options.shuffle = false;
  return options;
}

TEST(Loader, PadsRaggedFieldsToTheLongestSample) {
  for (const int workers : {0, 2}) {
    Loader loader(std::make_shared<Sentences>(), in_order(3, workers));
    const Batch first = loader.next_step().micro_batches.at(0), second = loader.next_step().micro_batches.at(0);
    EXPECT_EQ(first.tensor(kTokens).sizes(), (at::IntArrayRef{3, 3}));
    EXPECT_EQ(values(first.tensor(kTokens)), (std::vector<int64_t>{0, 9, 9, 1, 1, 9, 2, 2, 2}));
    EXPECT_EQ(values(first.find(kTokens)->counts), (std::vector<int64_t>{1, 2, 3}));
    EXPECT_EQ(second.tensor(kTokens).sizes(), (at::IntArrayRef{3, 4}));
    EXPECT_EQ(values(second.find("boxes")->counts), (std::vector<int64_t>{0, 1, 2}));
    EXPECT_EQ(second.tensor("boxes").sizes(), (at::IntArrayRef{3, 2, 4}));
    EXPECT_EQ(second.tensor("boxes").sum().item<double>(), 4 * 4 + 2 * 4 * 5);
    EXPECT_EQ(first.weight, 3);
  }
}

TEST(Loader, GivesRowsThatOnlyFillABatchNoTargets) {
  for (const bool training : {false, true}) {
    LoaderOptions options = in_order(4, 0);
    options.augment = training;
    Loader loader(std::make_shared<Sentences>(), options);
    loader.next_step();
    const Batch last = loader.next_step().micro_batches.at(0);  // samples 4 and 5, then two padding rows
    EXPECT_EQ(last.samples, 2);
    EXPECT_EQ(last.weight, 2);
    EXPECT_EQ(values(last.tensor(kTarget)), (std::vector<int64_t>{4, 5, kIgnoreIndex, kIgnoreIndex}));
    EXPECT_EQ(values(last.find("boxes")->counts), (std::vector<int64_t>{1, 2, 0, 0}));
    EXPECT_EQ(values(last.find(kTokens)->counts), (std::vector<int64_t>{1, 2, training ? 1 : 0, training ? 2 : 0}));
    EXPECT_EQ(last.tensor("weights")[3][0].item<double>(), training ? 1 : 0.5);
  }
}

TEST(Loader, CutsRowsThatOnlyFillABatchToTheOthers) {
  Loader loader(std::make_shared<Sentences>(), in_order(5, 0));
  loader.next_step();
  const Batch last = loader.next_step().micro_batches.at(0);  // sample 5, then 0 to 3, of which two are longer
  EXPECT_EQ(last.samples, 1);
  EXPECT_EQ(last.tensor(kTokens).sizes(), (at::IntArrayRef{5, 2}));
  EXPECT_EQ(values(last.find(kTokens)->counts), (std::vector<int64_t>{2, 1, 2, 2, 2}));
  EXPECT_EQ(values(last.tensor(kTokens)), (std::vector<int64_t>{5, 5, 0, 9, 1, 1, 2, 2, 3, 3}));
}

TEST(Loader, FillsEveryFieldOfASampleThatCannotBeRead) {
  const auto dataset = std::make_shared<Sentences>();
  dataset->broken = 1;
  LoaderOptions options = in_order(3, 0);
  options.max_bad_fraction = 0.5;
  Loader loader(dataset, options);
  const Batch batch = loader.next_step().micro_batches.at(0);
  EXPECT_EQ(batch.weight, 2);
  EXPECT_EQ(values(batch.tensor(kTokens)[1]), (std::vector<int64_t>{9, 9, 9}));
  EXPECT_EQ(values(batch.find(kTokens)->counts), (std::vector<int64_t>{1, 0, 3}));
  EXPECT_EQ(batch.tensor("weights")[1][1].item<double>(), 0.5);
}

TEST(Preprocess, ConvertsFloatsThatAreNoTargets) {
  const auto dataset = std::make_shared<Sentences>();
  Loader loader(dataset, in_order(3, 0));
  const Batch batch = Preprocess(*dataset, {.float_type = at::kDouble})(loader.next_step().micro_batches.at(0));
  EXPECT_EQ(batch.tensor("weights").scalar_type(), at::kDouble);
  EXPECT_EQ(batch.tensor("boxes").scalar_type(), at::kFloat);
  EXPECT_EQ(batch.tensor(kTokens).scalar_type(), at::kLong);
}

}  // namespace
}  // namespace gputrain::data
