// The number of rows that a GPU computes of a model's last layer: one for a length, which holds nearly all batches.
#include <map>
#include <memory>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "data/loaded_steps.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/data/dataset.hpp"

namespace gputrain::data {
namespace {

constexpr int64_t kLong = 256, kShort = 64;

/// Texts of two lengths. Of each about one target in `of` counts, by chance.
class Texts final : public Dataset {
 public:
  explicit Texts(int64_t of, bool is_broken = false) : of_(of), is_broken_(is_broken) {
    layout_ = SampleLayout::tokens(kLong, 100);
    for (Field& field : layout_.fields) field.ragged = true;
  }
  int64_t size() const override { return 4096; }
  const SampleLayout& layout() const override { return layout_; }
  bool is_cheap_to_read() const override { return true; }
  int64_t length(int64_t index) const override { return index % 3 == 0 ? kLong : kShort; }
  std::string describe() const override { return "texts"; }

  void read(int64_t index, const ReadContext& context, const SampleRow& row) const override {
    if (is_broken_) throw Error(ExitCode::data, {.what = "cannot be read"});
    for (int64_t i = 0; i < length(index); ++i) {
      const uint64_t number =
          mix(mix(context.seed, static_cast<uint64_t>(context.epoch * size() + index)), static_cast<uint64_t>(i));
      row.values<int64_t>(0)[i] = 1;
      row.values<int64_t>(1)[i] = static_cast<int64_t>(number >> 32) % of_ == 0 ? 1 : kIgnoreIndex;
    }
    for (const size_t field : {size_t{0}, size_t{1}}) row.set_count(field, length(index));
  }

 private:
  SampleLayout layout_;
  int64_t of_;
  bool is_broken_;
};

LoaderOptions with_classes(int64_t global_batch, int64_t micro_batch) {
  LoaderOptions options = options_for(global_batch, micro_batch);
  options.length_classes = 8;
  return options;
}

TEST(CountedTargets, AreOneNumberForALength) {
  Loader loader(std::make_shared<Texts>(7), with_classes(32, 16));
  std::map<int64_t, std::set<int64_t>> numbers;  // by length
  for (int step = 0; step < 100; ++step)
    for (const Batch& batch : loader.next_step().micro_batches) {
      const BatchField& targets = *batch.find(kTarget);
      EXPECT_EQ(batch.find(kTokens)->most_counted, 0);
      EXPECT_TRUE(targets.most_counted == 0 || batch.weight <= targets.most_counted);
      numbers[targets.values.size(1)].insert(targets.most_counted);
    }
  EXPECT_GE(numbers.size(), 2U);
  int64_t less = 0;
  for (const auto& [length, of_length] : numbers) {
    EXPECT_EQ(of_length.size(), 1U) << length;
    less += 16 * length - *of_length.begin();
  }
  EXPECT_GT(less, 16 * kLong / 2);
}

TEST(CountedTargets, AreTheSameWhereverTheLoaderBegins) {
  const auto numbers_from = [](const Position& from) {
    Loader loader(std::make_shared<Texts>(7), with_classes(32, 16), {.from = from});
    std::map<int64_t, int64_t> numbers;
    for (int step = 0; step < 50; ++step)
      for (const Batch& batch : loader.next_step().micro_batches)
        numbers[batch.find(kTarget)->values.size(1)] = batch.find(kTarget)->most_counted;
    return numbers;
  };
  EXPECT_EQ(numbers_from({}), numbers_from({.epoch = 3, .samples = 1024}));
}

TEST(CountedTargets, AreUnknownWhereNearlyAllCount) {
  Loader loader(std::make_shared<Texts>(1), with_classes(16, 16));
  for (int step = 0; step < 20; ++step) EXPECT_EQ(loader.next_step().micro_batches[0].find(kTarget)->most_counted, 0);
}

TEST(CountedTargets, LeaveAnErrorToItsBatch) {
  Loader loader(std::make_shared<Texts>(7, /*is_broken=*/true), with_classes(16, 16));
  EXPECT_THROW(loader.next_step(), Error);
}

}  // namespace
}  // namespace gputrain::data
