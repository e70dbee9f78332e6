// Subsets of a dataset: a fixed random choice that depends only on the number of samples, or the first samples.
#pragma once

#include <memory>

#include "gputrain/data/dataset.hpp"

namespace gputrain::data {

/// Returns the sample at `place` of the fixed shuffled order of n samples, of which splits are ranges.
int64_t sample_of_split(int64_t place, int64_t n) noexcept;

/// Base of subsets: everything but the samples is that of `whole`.
class SomeSamples : public Dataset {
 public:
  int64_t size() const final { return size_; }
  const SampleLayout& layout() const final { return whole_->layout(); }
  bool is_cheap_to_read() const final { return whole_->is_cheap_to_read(); }
  std::optional<Normalization> normalization() const final { return whole_->normalization(); }
  std::vector<std::string> class_names() const final { return whole_->class_names(); }
  uint64_t content_hash() const final { return whole_->content_hash(); }
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer() const final { return whole_->tokenizer(); }

  const Dataset& whole() const { return *whole_; }

 protected:
  SomeSamples(std::shared_ptr<const Dataset> whole, int64_t size);

 private:
  std::shared_ptr<const Dataset> whole_;
  int64_t size_;
};

class Subset final : public SomeSamples {
 public:
  int64_t length(int64_t index) const override { return whole().length(sample(index)); }
  int64_t length_of_pass(int64_t index, int pass) const override { return whole().length_of_pass(sample(index), pass); }
  std::string sample_name(int64_t index) const override { return whole().sample_name(sample(index)); }
  std::optional<int64_t> class_of(int64_t index) const override { return whole().class_of(sample(index)); }

  /// Takes samples [begin, end), as fractions, of a shuffled order. Disjoint ranges share no sample; ranges that cover
  /// [0, 1] cover all samples.
  Subset(std::shared_ptr<const Dataset> whole, double begin, double end);

  void read(int64_t index, const ReadContext& context, const SampleRow& row) const override;
  std::string describe() const override;

 private:
  int64_t sample(int64_t index) const { return sample_of_split(begin_ + index, whole().size()); }

  int64_t begin_;
};

class FirstSamples final : public SomeSamples {
 public:
  /// Takes at most `count` samples.
  FirstSamples(std::shared_ptr<const Dataset> whole, int64_t count);

  void read(int64_t index, const ReadContext& context, const SampleRow& row) const override;
  int64_t length(int64_t index) const override { return whole().length(index); }
  int64_t length_of_pass(int64_t index, int pass) const override { return whole().length_of_pass(index, pass); }
  std::string sample_name(int64_t index) const override { return whole().sample_name(index); }
  std::optional<int64_t> class_of(int64_t index) const override { return whole().class_of(index); }
  std::string describe() const override;
};

}  // namespace gputrain::data
