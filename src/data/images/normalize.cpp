#include "normalize.hpp"

#include <ATen/Parallel.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>

#include "gputrain/core/error.hpp"

namespace gputrain::data {
namespace {

/// Converts `pixels` pixels of C channels to C planes of `pixels` values each.
template <class Real, int64_t C>
void to_planes(const uint8_t* from, Real* to, int64_t pixels, const Real* scale, const Real* shift) {
  for (int64_t p = 0; p < pixels; ++p)
    for (int64_t c = 0; c < C; ++c) to[c * pixels + p] = static_cast<Real>(from[p * C + c]) * scale[c] + shift[c];
}

template <class Real, int64_t C>
void to_pixels(const uint8_t* from, Real* to, int64_t pixels, const Real* scale, const Real* shift) {
  constexpr size_t kChannels = C, kRun = 16 * kChannels;  // a multiple of both the pixel and the vector size
  Real scales[kRun], shifts[kRun];
  for (size_t i = 0; i < kRun; ++i) {
    scales[i] = scale[i % kChannels];
    shifts[i] = shift[i % kChannels];
  }
  size_t left = static_cast<size_t>(pixels) * kChannels;
  for (; left >= kRun; left -= kRun, from += kRun, to += kRun)
    for (size_t i = 0; i < kRun; ++i) to[i] = static_cast<Real>(from[i]) * scales[i] + shifts[i];
  for (size_t i = 0; i < left; ++i) to[i] = static_cast<Real>(from[i]) * scales[i] + shifts[i];
}

template <class Real, int64_t C>
void normalize_image(const uint8_t* from, Real* to, int64_t pixels, bool channels_last, const Real* scale,
                     const Real* shift) {
  channels_last ? to_pixels<Real, C>(from, to, pixels, scale, shift)
                : to_planes<Real, C>(from, to, pixels, scale, shift);
}

template <class Real>
void normalize_batch(const at::Tensor& images, at::Tensor& out, bool channels_last, const std::vector<double>& scale,
                     const std::vector<double>& shift) {
  const std::vector<Real> a(scale.begin(), scale.end()), b(shift.begin(), shift.end());
  const int64_t pixels = images.size(1) * images.size(2), channels = images.size(3);
  const uint8_t* from = images.const_data_ptr<uint8_t>();
  Real* to = out.mutable_data_ptr<Real>();
  constexpr int64_t kGrainValues = 32768;
  const int64_t grain = kGrainValues / (pixels * channels) + 1;
  at::parallel_for(0, images.size(0), grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin * pixels * channels; i < end * pixels * channels; i += pixels * channels) {
      if (channels == 3) {
        normalize_image<Real, 3>(from + i, to + i, pixels, channels_last, a.data(), b.data());
      } else {
        normalize_image<Real, 1>(from + i, to + i, pixels, channels_last, a.data(), b.data());
      }
    }
  });
}

}  // namespace

ImageNormalizer::ImageNormalizer(const Normalization& statistics, int64_t channels, at::Device device,
                                 ImageFormat format)
    : format_(format) {
  GPUTRAIN_ASSERT(channels == 1 || channels == 3, "images have one or three channels");
  GPUTRAIN_ASSERT(std::ssize(statistics.mean) == channels && std::ssize(statistics.std) == channels,
                  "one mean and one standard deviation for each channel");
  for (size_t c = 0; c < statistics.mean.size(); ++c) {
    scale_.push_back(1 / (255 * statistics.std[c]));
    shift_.push_back(-statistics.mean[c] / statistics.std[c]);
  }
  if (device.is_cpu()) return;
  const auto upload = [&](std::vector<double>& values) {
    return at::from_blob(values.data(), {1, channels, 1, 1}, at::kDouble).to(device, at::kFloat);
  };
  device_scale_ = upload(scale_);
  device_shift_ = upload(shift_);
}

at::Tensor ImageNormalizer::operator()(const at::Tensor& images) {
  return images.device().is_cpu() ? on_host(images) : on_device(images);
}

at::Tensor ImageNormalizer::on_host(const at::Tensor& images) {
  const bool is_double = format_.type == at::kDouble;
  at::Tensor out = outputs_.get({images.size(0), images.size(3), images.size(1), images.size(2)},
                                is_double ? at::kDouble : at::kFloat,
                                format_.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  if (is_double) {
    normalize_batch<double>(images, out, format_.channels_last, scale_, shift_);
  } else {
    normalize_batch<float>(images, out, format_.channels_last, scale_, shift_);
  }
  return out.to(format_.type);
}

/// Runs one kernel: addcmul reads bytes, computes in float and writes the output's type and layout.
at::Tensor ImageNormalizer::on_device(const at::Tensor& images) const {
  at::Tensor out =
      at::empty({images.size(0), images.size(3), images.size(1), images.size(2)}, images.options().dtype(format_.type),
                format_.channels_last ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous);
  at::addcmul_out(out, device_shift_, images.permute({0, 3, 1, 2}), device_scale_);
  return out;
}

}  // namespace gputrain::data
