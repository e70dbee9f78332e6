#include "gputrain/data/referenced_samples.hpp"

#include <algorithm>
#include <utility>

#include "gputrain/core/error.hpp"

namespace gputrain::data {

ReferencedSamples::ReferencedSamples(std::shared_ptr<const Dataset> samples, int64_t numbers)
    : samples_(std::move(samples)), numbers_(numbers), layout_(samples_->layout()) {
  layout_.fields.push_back({.name = kReference, .type = at::kDouble, .sizes = {numbers}});
}

void ReferencedSamples::set(const at::Tensor& values) {
  GPUTRAIN_ASSERT(values.is_contiguous() && values.scalar_type() == at::kDouble &&
                      values.sizes() == at::IntArrayRef({size(), numbers_}),
                  "a row of numbers for each sample");
  values_ = values;
}

void ReferencedSamples::read(int64_t index, const ReadContext& context, const SampleRow& row) const {
  samples_->read(index, context, row);
  double* to = row.values<double>(layout_.fields.size() - 1);
  if (values_.defined()) {
    std::copy_n(values_.const_data_ptr<double>() + index * numbers_, numbers_, to);
  } else {
    std::fill_n(to, numbers_, 0.0);
  }
}

}  // namespace gputrain::data
