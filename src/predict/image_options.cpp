#include "image_options.hpp"

namespace gputrain::app {

data::ImageOptions image_options_of(const trained::Model& model) {
  const data::Signature& learned = model.signature;
  data::ImageOptions options = model.job.spec().data.image;
  const auto& sizes = learned.layout.input().sizes;
  if (options.size.is_auto() && learned.gives != Target::pixels)
    options.size.value = config::OneOrMore<int64_t>{sizes[0], sizes[1]};
  options.channels.value = sizes[2];
  options.mean = learned.normalization->mean;
  options.std = learned.normalization->std;
  return options;
}

}  // namespace gputrain::app
