// Flat buffers for parameters, gradients and optimizer state; the model keeps views.
//
// Segments stand in unit order (stem, blocks, head), each padded to 128 bytes; padding is zero and stays zero. Fused
// optimizers, norms, finite tests, buckets and shards work on ranges of these buffers.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/device/working_copy.hpp"

namespace gputrain::device {

/// One tensor to be moved into the arena.
struct Resident {
  std::string name;
  at::Tensor value;    // its storage is replaced; identity, sizes and strides stay
  int64_t unit = 0;    // index of the model unit it belongs to; must not decrease along the list
  bool decays = true;  // weight decay applies
};

struct Segment {
  std::string name;
  int64_t offset = 0;  // elements from the start of the flat buffer
  int64_t numel = 0;   // without padding
  int64_t padded = 0;  // with padding
  std::vector<int64_t> sizes, strides;
  int64_t unit = 0;
  bool decays = true;

  /// Whether the elements stand in row-major order; channels-last ones do not.
  bool is_row_major() const noexcept;
};

/// A stretch of the flat buffers.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  bool decays = true;
  int64_t size() const noexcept { return end - begin; }
};

/// Which gradients there is memory for: all, or those of the stretch that the rank owns.
enum class Gradients { whole, owned };

class Arena {
 public:
  /// Moves every resident's storage into one flat buffer of their (common) dtype and device and gives each a `.grad`
  /// that is a view of a second flat buffer. Old contents are not copied: initialize or load afterwards.
  /// Within a unit, segments that decay come first, so that few ranges cover the arena.
  /// Gradients::owned: no `.grad` is defined, and whoever takes what backward leaves there undefines it again.
  /// `working_type`: of a copy that layers read; none: there is no copy.
  explicit Arena(const std::vector<Resident>& residents, Gradients kept = Gradients::whole,
                 std::optional<at::ScalarType> working_type = {});

  const at::Tensor& values() const noexcept { return values_; }  // [numel]
  /// [numel], zero after construction; undefined where only owned ones are kept.
  const at::Tensor& gradients() const noexcept { return gradients_; }
  /// [owned().size()]: a view of gradients(), or all that there is.
  const at::Tensor& owned_gradients() const noexcept { return owned_gradients_; }
  bool keeps_owned_gradients_only() const noexcept { return kept_ == Gradients::owned; }
  void clear_gradients();
  const c10::intrusive_ptr<WorkingCopy>& working_copy() const noexcept { return working_copy_; }  // or null
  const std::vector<Segment>& segments() const noexcept { return segments_; }

  /// Maximal runs of segments with the same decay flag, in order; together they cover the arena.
  std::vector<Range> decay_ranges() const;
  /// One range per unit, in order; their `decays` says nothing.
  std::vector<Range> unit_ranges() const;

  /// The stretch that this rank updates, and keeps an optimizer's state for; all of it unless `own` said otherwise.
  const Range& owned() const noexcept { return owned_; }
  /// To be called before anybody asks for owned(), owned_gradients() or state.
  void own(const Range& range);

  /// A new zeroed flat buffer for the owned stretch: an optimizer's state. On the CPU it takes memory only as it is
  /// written to.
  at::Tensor make_state() const;
  /// The view of `flat`, a buffer of the whole arena, that belongs to a segment, with the segment's sizes and strides.
  at::Tensor view(const at::Tensor& flat, const Segment& segment) const;
  /// The same of a state; the segment lies in the owned stretch.
  at::Tensor state_view(const at::Tensor& state, const Segment& segment) const;

  /// Asserts that values and gradients of all residents still are the arena's views (clearing gradients to "none", or
  /// a backward with other strides, replaces a `.grad`), or that no `.grad` was left behind.
  void check_views() const;

 private:
  Gradients kept_;
  at::Tensor values_, gradients_, owned_gradients_;
  c10::intrusive_ptr<WorkingCopy> working_copy_;
  Range owned_;
  std::vector<Segment> segments_;
  std::vector<at::Tensor> residents_;  // beside segments_
};

}  // namespace gputrain::device
