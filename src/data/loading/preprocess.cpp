#include "gputrain/data/preprocess.hpp"

#include <optional>

#include <c10/core/ScalarType.h>

#include "../images/normalize.hpp"

namespace gputrain::data {

struct Preprocess::Impl {
  at::ScalarType float_type;
  std::vector<bool> is_target;  // targets by field of the layout; fields that the loader adds are targets too
  std::optional<ImageNormalizer> normalizer;
};

Preprocess::Preprocess(const Dataset& dataset, const InputFormat& format) : impl_(std::make_unique<Impl>()) {
  const SampleLayout& layout = dataset.layout();
  impl_->float_type = format.float_type;
  for (const Field& field : layout.fields) impl_->is_target.push_back(field.target);
  if (layout.is_image())
    impl_->normalizer.emplace(dataset.normalization().value_or(Normalization{{0}, {1}}), layout.input().sizes.back(),
                              format.device, ImageFormat{format.float_type, format.channels_last});
}

Preprocess::~Preprocess() = default;
Preprocess::Preprocess(Preprocess&&) noexcept = default;

Batch Preprocess::operator()(const Batch& batch) const {
  await(batch);
  Batch finished = batch;
  for (size_t i = 0; i < finished.fields.size(); ++i) {
    at::Tensor& values = finished.fields[i].values;
    if (i == 0 && impl_->normalizer) {
      values = (*impl_->normalizer)(values);
    } else if (i < impl_->is_target.size() && at::isFloatingType(values.scalar_type()) && !impl_->is_target[i]) {
      values = values.to(impl_->float_type);
    }
  }
  return finished;
}

}  // namespace gputrain::data
