#include "gputrain/device/working_copy.hpp"

#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/as_strided.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/ne.h>

#include "flat_zeros.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::device {

/// Metadata on a weight's tensor. Replacing the weight's storage removes it; detached tensors keep it.
struct WorkingCopy::Metadata final : c10::BackendMeta {
  Metadata(c10::intrusive_ptr<WorkingCopy> of, at::Tensor at, size_t number)
      : copy(std::move(of)), view(std::move(at)), index(number) {}
  c10::intrusive_ptr<WorkingCopy> copy;
  at::Tensor view;
  size_t index;  // in weights_
};

WorkingCopy::WorkingCopy(at::Tensor values, at::ScalarType type)
    : values_(std::move(values)), copy_(flat_zeros(values_.numel(), values_.options().dtype(type))) {}

WorkingCopy::~WorkingCopy() = default;

void WorkingCopy::add(const at::Tensor& weight) {
  GPUTRAIN_ASSERT(weight.is_alias_of(values_), "a view of the values");
  add(weight, at::as_strided(copy_, weight.sizes(), weight.strides(), weight.storage_offset()));
}

void WorkingCopy::add(const at::Tensor& weight, const at::Tensor& copy) {
  // Not the weight itself, which owns a reference to this object, but a tensor that shares its version counter.
  weights_.emplace_back(weight.tensor_data());
  weight.unsafeGetTensorImpl()->set_backend_meta(c10::make_intrusive<Metadata>(
      c10::intrusive_ptr<WorkingCopy>::unsafe_reclaim_from_nonowning(this), copy, weights_.size() - 1));
}

void WorkingCopy::note_update(bool wrote_copy) noexcept {
  is_written_ = wrote_copy && was_read_;
  was_read_ = false;
}

bool WorkingCopy::is_untouched() const {
  if (versions_.empty() || values_._version() != versions_.back()) return false;
  for (size_t i = 0; i < weights_.size(); ++i) {
    if (weights_[i]._version() != versions_[i]) return false;
  }
  return true;
}

void WorkingCopy::note_versions() {
  versions_.clear();
  for (const at::Tensor& weight : weights_) versions_.push_back(weight._version());
  versions_.push_back(values_._version());
}

/// Checks the first trusted update once against a cast.
void WorkingCopy::prove() {
  if (std::exchange(is_proved_, true)) return;
  const at::Tensor differs = at::ne(copy_, values_.to(copy_.scalar_type())).logical_and_(at::eq(values_, values_));
  GPUTRAIN_ASSERT(!differs.any().item<bool>(), "an update left another copy of the weights than their cast");
}

void WorkingCopy::begin() {
  if (readings_++ > 0 || is_filled_by_others()) return;
  const at::NoGradGuard no_grad;
  if (std::exchange(is_written_, false) && is_untouched()) {
    prove();
  } else {
    copy_.copy_(values_);
  }
  note_versions();
  was_read_ = true;
}

Reading::Reading(c10::intrusive_ptr<WorkingCopy> copy) : copy_(std::move(copy)) {
  if (copy_) copy_->begin();
}

Reading::~Reading() {
  if (copy_) --copy_->readings_;
}

at::Tensor working_view(const at::Tensor& weight, at::ScalarType type) {
  const auto* metadata = dynamic_cast<const WorkingCopy::Metadata*>(weight.unsafeGetTensorImpl()->get_backend_meta());
  if (metadata == nullptr || metadata->copy->readings_ == 0 || metadata->view.scalar_type() != type) return {};
  const WorkingCopy& copy = *metadata->copy;
  if (copy.is_filled_by_others()) return metadata->view;
  const bool is_new =
      weight._version() == copy.versions_[metadata->index] && copy.values_._version() == copy.versions_.back();
  GPUTRAIN_ASSERT(is_new, "weights were changed while their copy was being read");
  return metadata->view;
}

}  // namespace gputrain::device
