// Arena: flat buffers for parameters, gradients and optimizer state; the model keeps views.
//
// Segments are in unit order (stem, blocks, head), each padded to 128 bytes; padding is zero and stays zero. Fused
// optimizers, norms, finite checks, buckets and shards work on ranges of these buffers.
//
// Frozen parameters are in none of these buffers: their values lie in flat buffers of their own, one per dtype.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/device/role.hpp"
#include "gputrain/device/working_copy.hpp"

namespace gputrain::device {

/// How the update of one parameter differs from the optimizer's own settings.
struct UpdateSettings {
  double lr_factor = 1;                // times the learning rate
  std::optional<double> weight_decay;  // instead of the rule's own

  friend bool operator==(const UpdateSettings&, const UpdateSettings&) = default;
};

/// One tensor that moves into the arena.
struct ArenaTensor {
  std::string name;
  at::Tensor value;    // gets new storage; identity, sizes and strides stay
  int64_t unit = 0;    // index of its model unit; must not decrease along the list
  bool decays = true;  // weight decay applies
  Role role = Role::weight;
  UpdateSettings settings = {};
  bool trainable = true;                           // false: frozen; must not require grad
  std::optional<at::ScalarType> frozen_type = {};  // dtype that a frozen value is kept in; empty: its own
};

struct Segment {
  std::string name;
  int64_t offset = 0;  // elements from the start of the flat buffer
  int64_t numel = 0;   // without padding
  int64_t padded = 0;  // with padding
  std::vector<int64_t> sizes, strides;
  int64_t unit = 0;
  bool decays = true;
  Role role = Role::weight;
  UpdateSettings settings;

  /// Whether the elements are in row-major order; false for channels-last.
  bool is_row_major() const noexcept;
};

/// A range of elements in the flat buffers.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const noexcept { return end - begin; }
};

/// Which gradients have memory: all, or only those of the range that the rank owns.
enum class Gradients { whole, owned };

class Arena {
 public:
  /// Moves the storage of all residents into one flat buffer (they must share dtype and device) and gives each a
  /// `.grad` that is a view of a second flat buffer. Does not copy old contents: initialize or load afterwards.
  /// Within a unit, segments that decay come first, and those of equal settings are neighbours, so that few ranges
  /// cover the arena. At least one resident is trainable; frozen ones get storage of their own and no `.grad`.
  /// Gradients::owned: sets no `.grad`; code that takes a gradient after backward must reset `.grad`.
  /// `working_type`: dtype of a copy that layers read; empty: no copy.
  explicit Arena(const std::vector<ArenaTensor>& arena_tensors, Gradients kept = Gradients::whole,
                 std::optional<at::ScalarType> working_type = {});

  const at::Tensor& values() const noexcept { return values_; }  // [numel]
  /// [numel], zero after construction; undefined for Gradients::owned.
  const at::Tensor& gradients() const noexcept { return gradients_; }
  /// [owned().size()]: a view of gradients(), or a buffer of its own for Gradients::owned.
  const at::Tensor& owned_gradients() const noexcept { return owned_gradients_; }
  bool keeps_owned_gradients_only() const noexcept { return kept_ == Gradients::owned; }
  void clear_gradients();
  const c10::intrusive_ptr<WorkingCopy>& working_copy() const noexcept { return working_copy_; }  // or null
  const std::vector<Segment>& segments() const noexcept { return segments_; }

  /// The frozen parameters by name, as views of frozen_values().
  const std::vector<std::pair<std::string, at::Tensor>>& frozen() const noexcept { return frozen_; }
  const std::vector<at::Tensor>& frozen_values() const noexcept { return frozen_values_; }  // flat, one per dtype

  /// One range per unit, in order; together they cover the arena.
  std::vector<Range> unit_ranges() const;

  /// The range that this rank updates and keeps optimizer state for. By default the whole arena; for Gradients::owned
  /// empty until own() is called.
  const Range& owned() const noexcept { return owned_; }
  /// Call before any use of owned(), owned_gradients() or make_state().
  void own(const Range& range);

  /// A new zeroed flat buffer for the owned range: an optimizer's state. On the CPU, pages take memory only when
  /// written.
  at::Tensor make_state() const;
  /// The view of a segment in `flat`, a buffer of the whole arena, with the segment's sizes and strides.
  at::Tensor view(const at::Tensor& flat, const Segment& segment) const;
  /// The same for `state` from make_state(); the segment must lie in the owned range.
  at::Tensor state_view(const at::Tensor& state, const Segment& segment) const;

  /// Asserts that the values and gradients of all residents are still views of the arena, or that no `.grad` is left
  /// for Gradients::owned. Setting gradients to none or a backward with other strides replaces a `.grad`.
  void check_views() const;

 private:
  void place_frozen(const std::vector<ArenaTensor>& arena_tensors);

  Gradients kept_;
  at::Tensor values_, gradients_, owned_gradients_;
  c10::intrusive_ptr<WorkingCopy> working_copy_;
  Range owned_;
  std::vector<Segment> segments_;
  std::vector<at::Tensor> arena_tensors_;  // in the order of segments_
  std::vector<std::pair<std::string, at::Tensor>> frozen_;
  std::vector<at::Tensor> frozen_values_;
};

}  // namespace gputrain::device
