// The costs of recorded events: by operator, by range of the training loop, by unit of the model.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace gputrain::train {

/// Names of the ranges that the training loop marks.
inline constexpr const char* kStepRange = "step";
inline constexpr const char* kDataRange = "wait for data";
inline constexpr const char* kAgreeRange = "agree with the other ranks";
inline constexpr const char* kForwardRange = "forward";
inline constexpr const char* kBackwardRange = "backward";
inline constexpr const char* kReduceRange = "reduce gradients";
inline constexpr const char* kUpdateRange = "update";
inline constexpr const char* kDeviceRange = "wait for the device";

/// A recorded interval. Host events of one thread nest.
struct ProfiledEvent {
  enum class Kind {
    op,        // an operator, or a step of the autograd engine
    backward,  // a node of the backward pass
    range,     // a part of the training loop
    unit,      // a unit's forward pass
    device     // on a GPU: a kernel, a copy
  };
  std::string name;
  Kind kind = Kind::op;
  uint64_t track = 0;  // on the host, a thread; on a device, a stream
  int64_t begin_ns = 0, end_ns = 0;
  double flops = 0;
  int64_t sequence = -1;  // number of the forward pass's operator to which a node of the backward pass belongs
  std::string shapes;     // sizes of the inputs; empty: unknown

  double seconds() const { return 1e-9 * static_cast<double>(end_ns - begin_ns); }
};

/// One forward pass through a unit: the numbers that autograd gave to its operators, [first, end).
struct UnitPass {
  std::string unit;
  int64_t first = 0, end = 0;
};

struct ProfileCost {
  std::string name;
  int64_t calls = 0;
  double self_seconds = 0;   // without the operators that it called
  double total_seconds = 0;  // with it; of nested calls of one name, the outer one counts
  double flops = 0;
};

struct UnitCost {
  std::string name;
  double forward_seconds = 0, backward_seconds = 0;
};

struct ProfileSummary {
  int64_t steps = 0;
  double seconds = 0;                  // time of the steps together
  std::vector<ProfileCost> operators;  // sorted by self time; their self times and those of the ranges sum to `seconds`
  std::vector<ProfileCost> ranges;     // sorted by total time; self time: between the operators
  std::vector<UnitCost> units;         // in order of the forward pass
  std::vector<ProfileCost> kernels;    // on a GPU, by time
  double busy_seconds = 0;             // time in which the GPU did something
  double flops = 0;                    // operations of the operators

  /// Returns the total time of a range; 0: there is none.
  double range_seconds(const std::string& name) const;
};

/// Sums up the events within ranges named kStepRange.
ProfileSummary summarize_profile(std::vector<ProfiledEvent> events, const std::vector<UnitPass>& passes);

}  // namespace gputrain::train
