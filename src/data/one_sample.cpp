#include "gputrain/data/one_sample.hpp"

namespace gputrain::data {

OneSample::OneSample(const Dataset& dataset, int64_t index, const ReadContext& context) {
  const auto& fields = dataset.layout().fields;
  values_.resize(fields.size());
  counts_.resize(fields.size());
  for (size_t i = 0; i < fields.size(); ++i) {
    values_[i].resize(fields[i].bytes());
    memory_.push_back({.values = values_[i].data(),
                       .counts = fields[i].ragged ? &counts_[i] : nullptr,
                       .bytes = fields[i].bytes(),
                       .element_bytes = c10::elementSize(fields[i].type)});
  }
  dataset.read(index, context, SampleRow(memory_, 0));
}

}  // namespace gputrain::data
