// Arena: flat buffers for parameters, gradients and optimizer state; the model keeps views.
//
// Segments are in unit order (stem, blocks, head), each padded to 128 bytes; padding is zero and stays zero. Fused
// optimizers, norms, finite checks, buckets and shards work on ranges of these buffers.
//
// Frozen parameters are in none of these buffers: their values lie in flat buffers of their own, one per dtype.
//
// If ranks share out the values too (Kept::owned), each has those of its pieces only, and an equal share of the frozen
// ones. The model's tensors are then views of parts without memory; parallel/sharded_parameters.hpp gives a part memory
// and gathers it while its unit computes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/device/role.hpp"
#include "gputrain/device/split.hpp"
#include "gputrain/device/working_copy.hpp"

namespace gputrain::device {

/// The settings of one parameter's update that differ from the optimizer's own.
struct UpdateSettings {
  double lr_factor = 1;                // times the learning rate
  std::optional<double> weight_decay;  // weight decay of this parameter; empty: the optimizer's

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
  bool read_in_master = true;                      // false: layers read the working copy
  std::optional<at::ScalarType> frozen_type = {};  // dtype that a frozen value is kept in; empty: its own
  std::optional<Split> split = {};                 // how ranks share it; `value` is then this rank's part
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
  std::optional<Split> split;  // as in ArenaTensor

  /// Returns the dimensions, from that along which elements are farthest apart to that of neighbours. Empty: row-major.
  std::vector<int64_t> order() const;
};

/// A range of elements in the flat buffers.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const noexcept { return end - begin; }
};

/// The part of an arena that one rank keeps when ranks share it out: ranges in ascending order.
using Shard = std::vector<Range>;

/// A range that the rank owns, and its place in buffers of owned ranges alone.
struct Piece {
  Range range;
  int64_t at = 0;
};

/// The gradients or values that have memory: all, or only those of the ranges that the rank owns.
enum class Kept { whole, owned };

/// Sizes up to which neighbouring ranges are joined, from the last to the first.
struct JoinLimits {
  int64_t bytes = int64_t{25} << 20;
  int64_t first_bytes = int64_t{1} << 20;  // limit of the first two: small, so that communication starts early
};

/// Joins neighbours of `ranges`, elements of `element_bytes`. In descending order; one above the limit stays alone.
std::vector<Range> join(std::vector<Range> ranges, int64_t element_bytes, const JoinLimits& limits);

struct ArenaOptions {
  Kept gradients = Kept::whole;
  Kept values = Kept::whole;  // owned: needs shards > 1; each part then belongs to one unit
  /// dtype of trained values and their gradients; empty: the tensors' own.
  std::optional<at::ScalarType> values_type = {};
  bool state_on_host = false;  // the optimizer's state lies in the host's memory
  /// Key of the random bits by which updates round values and state to 16 bits.
  uint64_t rounding_seed = 0;
  /// dtype of a copy that layers read; empty: no copy.
  std::optional<at::ScalarType> working_type = {};
  /// Ranks among which parts of the arena, which are units joined up to `parts`, are split equally. Each part is padded
  /// for that. 1: there are no parts.
  int64_t shards = 1;
  JoinLimits parts = {};
};

/// A part of an arena whose values have memory only while they are gathered.
struct GatheredPart {
  Range range;
  int64_t unit = 0;
  at::Tensor values;  // [range.size()]
  at::Tensor copy;    // the same in the working type; undefined if layers read the values

  const at::Tensor& read() const noexcept { return copy.defined() ? copy : values; }
};

/// Frozen values of one unit in one dtype, which ranks share out equally. They have memory only while they are
/// gathered.
struct FrozenPart {
  int64_t unit = 0;
  std::vector<Segment> segments;  // offsets from the start of the part
  at::Tensor values;              // [numel], with padding
  at::Tensor own;                 // [numel / shards]: this rank's share, a view of frozen_values()
};

/// Gives a tensor without memory new memory, with undefined content; it and its views then share that.
void give_memory(const at::Tensor& tensor);
bool has_memory(const at::Tensor& tensor);
/// Takes the memory from a tensor and its views. Reading one of them is then an error.
void take_memory(const at::Tensor& tensor);

class Arena {
 public:
  /// Moves the storage of all tensors into one flat buffer (they must share dtype and device) and gives each a
  /// `.grad` that is a view of a second flat buffer. Does not copy old contents: initialize or load afterwards.
  /// Within a unit, segments that decay come first, and those of equal settings are neighbours, so that few ranges
  /// cover the arena. At least one tensor is trainable; frozen ones get storage of their own and no `.grad`.
  /// Kept::owned gradients: sets no `.grad`; code that takes a gradient after backward must reset `.grad`.
  explicit Arena(const std::vector<ArenaTensor>& arena_tensors, const ArenaOptions& options = {});

  int64_t numel() const noexcept { return numel_; }  // elements of all trainable parameters, with padding
  at::TensorOptions options() const { return values_.options(); }
  at::ScalarType type() const { return values_.scalar_type(); }
  /// Returns the type in which updates compute and keep state: type(), but at least fp32.
  at::ScalarType state_type() const { return has_narrow_values() ? at::kFloat : type(); }
  /// Returns whether the trained values have 16 bits: there is no wider copy of them.
  bool has_narrow_values() const { return element_bytes() < 4; }
  uint64_t rounding_seed() const noexcept { return rounding_seed_; }
  int64_t element_bytes() const { return static_cast<int64_t>(values_.itemsize()); }

  const at::Tensor& values() const;  // [numel]; asserts that they are whole
  /// Returns, for Kept::owned values, [owned_numel()]: those of the pieces, one after the other. Otherwise undefined.
  const at::Tensor& owned_values() const noexcept { return owned_values_; }
  const at::Tensor& kept_values() const noexcept {  // the tensor that has memory
    return keeps_owned_values_only() ? owned_values_ : values_;
  }
  bool keeps_owned_values_only() const noexcept { return kept_values_ == Kept::owned; }
  bool keeps_state_on_host() const noexcept { return state_on_host_; }
  /// Returns, for Kept::owned values, the parts, in the order of parts().
  const std::vector<GatheredPart>& gathered_parts() const noexcept { return gathered_; }
  /// Returns the segment of a trainable parameter.
  const Segment& segment_of(const at::Tensor& parameter) const;
  /// Returns [numel], zero after construction; undefined for Kept::owned.
  const at::Tensor& gradients() const noexcept { return gradients_; }
  /// Returns, for Kept::owned, [owned_numel()]: the gradients of the pieces, one after the other. Otherwise undefined.
  const at::Tensor& owned_gradients() const noexcept { return owned_gradients_; }
  bool keeps_owned_gradients_only() const noexcept { return kept_ == Kept::owned; }
  /// Returns the gradient of what the rank owns, in flat tensors that follow one another.
  std::vector<at::Tensor> gradients_of_pieces() const;
  const at::Tensor& kept_gradients() const noexcept {  // the tensor that has memory
    return kept_ == Kept::whole ? gradients_ : owned_gradients_;
  }
  void clear_gradients();
  const c10::intrusive_ptr<WorkingCopy>& working_copy() const noexcept { return working_copy_; }  // or null
  const std::vector<Segment>& segments() const noexcept { return segments_; }

  /// Returns the frozen parameters by name, as views of frozen_values(), or for Kept::owned values of frozen_parts().
  const std::vector<std::pair<std::string, at::Tensor>>& frozen() const noexcept { return frozen_; }
  /// Returns one flat tensor per dtype: the frozen values, or for Kept::owned values this rank's share of them.
  const std::vector<at::Tensor>& frozen_values() const noexcept { return frozen_values_; }
  /// Returns, for Kept::owned values, the parts by unit, then dtype. Otherwise empty.
  const std::vector<FrozenPart>& frozen_parts() const noexcept { return frozen_parts_; }

  /// Returns one range per unit, in order; together they cover the arena.
  std::vector<Range> unit_ranges() const;

  /// Returns the ranges that are split equally among options.shards ranks, in descending order; empty for one rank.
  const std::vector<Range>& parts() const noexcept { return parts_; }
  /// Returns the shard of `rank` if each part is split equally among the ranks.
  Shard shard_of(int64_t rank) const;
  /// Returns, for Kept::owned values and after own(), the rank whose shard_of() this rank owns.
  int64_t share() const;

  /// Returns the pieces that this rank updates and keeps optimizer state for: the whole arena by default; with
  /// Kept::owned, none until own() is called.
  const std::vector<Piece>& owned() const noexcept { return owned_; }
  int64_t owned_numel() const noexcept { return owned_.empty() ? 0 : owned_.back().at + owned_.back().range.size(); }
  bool owns_all() const noexcept { return owned_numel() == numel_; }
  /// Call before any use of owned(), owned_gradients(), owned_values() or make_state(). Keeps owned_values() if the
  /// shard has the same size.
  void own(const Shard& shard);

  /// Returns a new zeroed flat buffer [owned_numel()] of state_type() for the pieces: an optimizer's state. On the CPU,
  /// pages take memory only when written.
  at::Tensor make_state() const;
  /// Makes the same with other sizes or of another type: [numel] of `type`.
  at::Tensor make_state(int64_t numel, at::ScalarType type) const;
  /// Returns the view of a segment in `flat`, a buffer of the whole arena, with the segment's sizes and strides.
  at::Tensor view(const at::Tensor& flat, const Segment& segment) const;
  /// Returns the same for `state` from make_state(); the segment must lie in one piece.
  at::Tensor state_view(const at::Tensor& state, const Segment& segment) const;

  /// Asserts that the values and gradients of all tensors are still views of the arena, or that no `.grad` is left
  /// for Kept::owned. Setting gradients to none or a backward with other strides replaces a `.grad`.
  void check_views() const;

 private:
  void place_frozen(const std::vector<ArenaTensor>& arena_tensors);
  void share_out_frozen(const std::vector<ArenaTensor>& arena_tensors);

  void place(size_t index);

  Kept kept_, kept_values_;
  bool state_on_host_;
  int64_t numel_ = 0, shards_;
  uint64_t rounding_seed_;
  at::Tensor values_, owned_values_, gradients_, owned_gradients_;
  c10::intrusive_ptr<WorkingCopy> working_copy_;
  std::vector<Piece> owned_;
  std::vector<Range> parts_;
  std::vector<GatheredPart> gathered_;
  std::vector<Segment> segments_;
  std::vector<at::Tensor> arena_tensors_;  // in the order of segments_
  std::vector<std::pair<std::string, at::Tensor>> frozen_;
  std::vector<at::Tensor> frozen_values_;
  std::vector<FrozenPart> frozen_parts_;
};

}  // namespace gputrain::device
