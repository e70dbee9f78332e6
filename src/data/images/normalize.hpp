// Normalisation from bytes to floats: (value / 255 - mean) / std per channel, in one pass.
#pragma once

#include <vector>

#include <ATen/core/Tensor.h>

#include "../loading/batch_buffers.hpp"
#include "gputrain/data/dataset.hpp"

namespace gputrain::data {

struct ImageFormat {
  at::ScalarType type = at::kFloat;
  bool channels_last = false;
};

class ImageNormalizer {
 public:
  ImageNormalizer(const Normalization& statistics, int64_t channels, at::Device device, ImageFormat format);

  /// Converts bytes [batch, height, width, channels] on our device to [batch, channels, height, width] in the format.
  at::Tensor operator()(const at::Tensor& images);

 private:
  at::Tensor on_host(const at::Tensor& images);
  at::Tensor on_device(const at::Tensor& images) const;

  std::vector<double> scale_, shift_;  // factor and addend: value * scale + shift
  at::Tensor device_scale_, device_shift_;
  ImageFormat format_;
  TensorPool outputs_;
};

}  // namespace gputrain::data
