// Samples with numbers that a model gave for them before its training.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/data/dataset.hpp"

namespace gputrain::data {

/// Another dataset, with the field kReference last: 0 until numbers are set.
class ReferencedSamples final : public Dataset {
 public:
  /// Takes `numbers`, the count for each sample, at least 1.
  ReferencedSamples(std::shared_ptr<const Dataset> samples, int64_t numbers);

  int64_t size() const override { return samples_->size(); }
  const SampleLayout& layout() const override { return layout_; }
  void read(int64_t index, const ReadContext& context, const SampleRow& row) const override;
  int64_t length(int64_t index) const override { return samples_->length(index); }
  int64_t length_of_pass(int64_t index, int pass) const override { return samples_->length_of_pass(index, pass); }
  bool is_cheap_to_read() const override { return samples_->is_cheap_to_read(); }
  std::optional<Normalization> normalization() const override { return samples_->normalization(); }
  std::vector<std::string> class_names() const override { return samples_->class_names(); }
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer() const override { return samples_->tokenizer(); }
  uint64_t content_hash() const override { return samples_->content_hash(); }
  std::string describe() const override { return samples_->describe(); }

  const std::shared_ptr<const Dataset>& samples() const noexcept { return samples_; }
  int64_t numbers() const noexcept { return numbers_; }
  /// Sets float64 [size(), numbers()] on the CPU. Call it before samples are read.
  void set(const at::Tensor& values);

 private:
  std::shared_ptr<const Dataset> samples_;
  int64_t numbers_;
  SampleLayout layout_;
  at::Tensor values_;  // undefined: not set
};

}  // namespace gputrain::data
