// A copy of an arena's values in the narrower type that layers read them in: one flat buffer instead of a cast of every
// weight in every pass.
//
// The values have many writers: initial values, files, other ranks, updates. No writer is trusted to keep the copy in
// step. It can be read only while a Reading lives, and what makes a Reading makes the copy new: it casts all values,
// unless the launch that changed them has written the copy as well and nothing has touched them since. Without a
// Reading a weight is cast where it is read.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

namespace gputrain::device {

class WorkingCopy final : public c10::intrusive_ptr_target {
 public:
  /// `values` [numel] are the arena's, and stay where they are.
  WorkingCopy(at::Tensor values, at::ScalarType type);
  ~WorkingCopy() override;

  const at::Tensor& tensor() const noexcept { return copy_; }  // [numel], in the arena's order

  /// `weight` is a view of the values, and is read as the same view of the copy from now on.
  void add(const at::Tensor& weight);

  /// To be told by every update: whether the launch that changed all values, or left all of them as they were, did so
  /// to the copy too.
  void note_update(bool wrote_copy) noexcept;
  /// Whether the last update said so, and could be believed.
  bool is_written() const noexcept { return is_written_; }

 private:
  friend class Reading;
  friend at::Tensor working_view(const at::Tensor& weight, at::ScalarType type);
  struct Place;

  void begin();
  bool is_untouched() const;
  void note_versions();
  void prove();

  at::Tensor values_, copy_;
  std::vector<at::Tensor> weights_;  // views of the values, beside versions_
  std::vector<int64_t> versions_;    // of weights_ when the copy was new; of the values at the end
  int readings_ = 0;
  bool was_read_ = false;    // since the last update
  bool is_written_ = false;  // by the last update
  bool is_proved_ = false;   // that an update writes what a cast does
};

/// While it lives, weights are read from the copy, until the values are updated. Null: there is no copy.
class Reading {
 public:
  explicit Reading(c10::intrusive_ptr<WorkingCopy> copy);
  ~Reading();
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  c10::intrusive_ptr<WorkingCopy> copy_;
};

/// What to read in place of a weight; undefined where it has no copy of this type that is being read. Asserts that the
/// weight is what it was when the copy was made.
at::Tensor working_view(const at::Tensor& weight, at::ScalarType type);

}  // namespace gputrain::device
