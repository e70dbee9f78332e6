// Some of a dataset's samples: a fixed share of them, picked by a shuffle that depends on nothing but their number; or
// the first ones.
#pragma once

#include <memory>

#include "gputrain/data/dataset.hpp"

namespace gputrain::data {

class GPUTRAIN_API Subset final : public Dataset {
 public:
  /// Samples at [begin, end), as fractions, of the shuffled order. Disjoint ranges share no sample; ranges that cover
  /// [0, 1] leave none out.
  Subset(std::shared_ptr<const Dataset> whole, double begin, double end);

  int64_t size() const override { return end_ - begin_; }
  const SampleLayout& layout() const override { return whole_->layout(); }
  void read(int64_t index, const ReadContext& context, std::byte* input, int64_t* target) const override;
  bool is_cheap_to_read() const override { return whole_->is_cheap_to_read(); }
  std::optional<Normalization> normalization() const override { return whole_->normalization(); }
  std::vector<std::string> class_names() const override { return whole_->class_names(); }
  std::string describe() const override;

 private:
  std::shared_ptr<const Dataset> whole_;
  int64_t begin_, end_;
};

class GPUTRAIN_API FirstSamples final : public Dataset {
 public:
  FirstSamples(std::shared_ptr<const Dataset> whole, int64_t count);

  int64_t size() const override { return count_; }
  const SampleLayout& layout() const override { return whole_->layout(); }
  void read(int64_t index, const ReadContext& context, std::byte* input, int64_t* target) const override {
    whole_->read(index, context, input, target);
  }
  bool is_cheap_to_read() const override { return whole_->is_cheap_to_read(); }
  std::optional<Normalization> normalization() const override { return whole_->normalization(); }
  std::vector<std::string> class_names() const override { return whole_->class_names(); }
  std::string describe() const override;

 private:
  std::shared_ptr<const Dataset> whole_;
  int64_t count_;
};

}  // namespace gputrain::data
