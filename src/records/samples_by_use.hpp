// Base of formats of text, whose samples depend on what the model learns from texts.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gputrain/data/dataset.hpp"

namespace gputrain::records {

/// Gives what another dataset reads.
class SamplesByUse : public data::Dataset {
 public:
  explicit SamplesByUse(std::shared_ptr<const data::Dataset> samples) : samples_(std::move(samples)) {}

  int64_t size() const override { return samples_->size(); }
  const data::SampleLayout& layout() const override { return samples_->layout(); }
  void read(int64_t index, const data::ReadContext& context, const data::SampleRow& row) const override {
    samples_->read(index, context, row);
  }
  int64_t length(int64_t index) const override { return samples_->length(index); }
  int64_t length_of_pass(int64_t index, int pass) const override { return samples_->length_of_pass(index, pass); }
  bool is_cheap_to_read() const override { return samples_->is_cheap_to_read(); }
  std::shared_ptr<const Dataset> part(double begin, double end, data::Split role) const override {
    return samples_->part(begin, end, role);
  }
  std::vector<std::string> class_names() const override { return samples_->class_names(); }
  std::optional<int64_t> class_of(int64_t index) const override { return samples_->class_of(index); }
  std::optional<data::Normalization> normalization() const override { return samples_->normalization(); }
  std::string sample_name(int64_t index) const override { return samples_->sample_name(index); }
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer() const override { return samples_->tokenizer(); }
  uint64_t content_hash() const override { return samples_->content_hash(); }
  std::string describe() const override { return samples_->describe(); }

  const data::Dataset& samples() const noexcept { return *samples_; }

 private:
  std::shared_ptr<const data::Dataset> samples_;
};

/// The training data, if it is of this class, also within a format; else null.
template <class Samples>
const Samples* samples_of(const data::Dataset* train) {
  const auto* by_use = dynamic_cast<const SamplesByUse*>(train);
  return dynamic_cast<const Samples*>(by_use != nullptr ? &by_use->samples() : train);
}

}  // namespace gputrain::records
