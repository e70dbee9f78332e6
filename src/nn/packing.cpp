#include "gputrain/nn/packing.hpp"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/isfinite.h>

#include "gputrain/core/error.hpp"

namespace gputrain::nn {

Packing::~Packing() = default;

PackingCatalog& packings() {
  static PackingCatalog packings("packing");
  return packings;
}

Packed::Packed(std::shared_ptr<const Packing> packing, const PackedShape& shape, at::Device device)
    : packing_(std::move(packing)), shape_(shape) {
  for (const Packing::Part& part : packing_->parts(shape))
    parts_.push_back(at::empty(part.sizes, at::TensorOptions().dtype(part.type).device(device)));
}

std::vector<std::string> Packed::suffixes() const {
  std::vector<std::string> suffixes;
  for (const Packing::Part& part : packing_->parts(shape_))
    suffixes.push_back(part.name.empty() ? "" : "_" + part.name);
  return suffixes;
}

void Packed::fill(const at::Tensor& matrix) const {
  const at::NoGradGuard no_grad;
  packing_->pack(matrix.to(parts_.front().device()).contiguous(), parts_);
}

void Packed::fill(const FoundPacked& found, const std::string& where) const {
  const at::NoGradGuard no_grad;
  const std::vector<Packing::Part> parts = packing_->parts(shape_);
  const std::vector<at::Tensor> theirs = found.parts();
  GPUTRAIN_ASSERT(theirs.size() == parts.size(), "the model was built for what the file has: " + where);
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].type == at::kFloat && !at::isfinite(theirs[i]).all().item<bool>())
      throw Error(ExitCode::data, {.what = "scales of quantised weights are NaN or infinite", .where = where});
    parts_[i].copy_(theirs[i]);
  }
}

ops::FrozenMatrix Packed::matrix() const {
  return {.parts = parts_,
          .read = [packing = packing_, stored = shape_.stored](
                      const auto& parts, const at::Tensor& into) { packing->unpack(parts, stored, into); },
          .sizes = {shape_.rows, shape_.columns}};
}

}  // namespace gputrain::nn
