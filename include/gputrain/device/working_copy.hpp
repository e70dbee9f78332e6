// A copy of the arena's values in the narrower dtype that layers compute in: one flat buffer instead of a cast of every
// weight in every pass.
//
// Many writers change the values: initialization, files, other ranks, updates. None of them has to keep the copy
// current. The copy can be read only during the lifetime of a Reading, and creating a Reading makes it current: it
// casts all values, unless the update kernel has written the copy too and nothing has changed the values since. Without
// a Reading, each weight is cast where it is read.
//
// Of values that ranks share out there is no flat copy: whoever gathers a part fills its copy, before a layer reads it.
#pragma once

#include <cstdint>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

namespace gputrain::device {

class WorkingCopy final : public c10::intrusive_ptr_target {
 public:
  /// `values` [numel]: the arena's values, which must keep their address. Empty: each weight is added with its own
  /// copy.
  WorkingCopy(at::Tensor values, at::ScalarType type);
  ~WorkingCopy() override;

  const at::Tensor& tensor() const noexcept { return copy_; }  // [numel], in the arena's order

  /// Registers `weight`, a view of the values: layers then read the same view of the copy.
  void add(const at::Tensor& weight);
  /// Adds in the same way a weight whose copy others fill.
  void add(const at::Tensor& weight, const at::Tensor& copy);

  /// Call after every update. `wrote_copy`: the kernel that changed all values (or skipped the update) did the same to
  /// the copy.
  void note_update(bool wrote_copy) noexcept;
  /// Returns whether the last update wrote the copy and the copy was current before it.
  bool is_written() const noexcept { return is_written_; }

 private:
  friend class Reading;
  friend at::Tensor working_view(const at::Tensor& weight, at::ScalarType type);
  struct Metadata;

  bool is_filled_by_others() const noexcept { return values_.numel() == 0; }
  void begin();
  bool is_untouched() const;
  void note_versions();
  void prove();

  at::Tensor values_, copy_;
  std::vector<at::Tensor> weights_;  // views of the values, in the order of versions_
  std::vector<int64_t> versions_;  // versions of weights_ when the copy was made current; the last one is of the values
  int readings_ = 0;
  bool was_read_ = false;    // since the last update
  bool is_written_ = false;  // by the last update
  bool is_proved_ = false;   // an update was verified to write the same as a cast
};

/// During its lifetime, layers read weights from the copy, until an update changes the values. Null: there is no copy.
class Reading {
 public:
  explicit Reading(c10::intrusive_ptr<WorkingCopy> copy);
  ~Reading();
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

 private:
  c10::intrusive_ptr<WorkingCopy> copy_;
};

/// Returns the view to read instead of a weight; undefined if no copy of this type is being read. Asserts that the
/// weight has not changed since the copy was made current.
at::Tensor working_view(const at::Tensor& weight, at::ScalarType type);

}  // namespace gputrain::device
