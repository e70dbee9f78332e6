// Which way an operator takes on a GPU: ATen's, or a kernel of our own. Decided where a shape is first met, by running
// both ways on it: ours has to be right and faster. Remembered in a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>
#include <nlohmann/json_fwd.hpp>

namespace gputrain::ops {

using Tensors = std::vector<at::Tensor>;
/// An operator on the autograd graph: its results from its inputs, of which some may be undefined.
using Way = std::function<Tensors(const Tensors&)>;

/// Thrown by a way of our own, before it has changed anything, where there is no kernel for its inputs after all.
struct NoKernel : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class PathChoice {
 public:
  enum class Mode { measure, never };  // never: ATen's way everywhere

  struct Options {
    Mode mode = Mode::measure;
    std::string machine;         // GPU and versions: what was found on another does not count
    std::filesystem::path file;  // one line of JSON per choice; empty: nothing is remembered
    bool time_counts = true;     // false: what is right is taken, so that a run does not depend on a clock
    std::function<double(const std::function<void()>&)> milliseconds;  // that a piece of work takes
    std::function<bool()> can_measure;                                 // false: under capture, for instance
    std::function<std::shared_ptr<void>()> aside = {};  // while it is held, memory taken does not count as the run's
  };

  explicit PathChoice(Options options);

  /// What both ways are compared on: at most so many elements of an input or a result, by taking fewer of the first
  /// dim; fewer yet where memory is short.
  static constexpr int64_t kMostElements = int64_t{1} << 26;

  /// What the first inputs of an operator are.
  struct Inputs {
    size_t batched = 1;         // they share their first dim, of which a part serves to measure
    size_t differentiable = 1;  // they may require a gradient
    int64_t growth = 1;         // elements of the largest result for one of the first input
    bool whole = false;         // kernels are found for these very sizes: all of it is compared where memory suffices
    bool replicated = false;  // ranks have to come to the same bits: what is right is taken, whatever their clocks say
  };

  /// Whether the operator takes our own way, forward and backward: the answer is the same with and without a gradient,
  /// so that what is computed again is computed alike. Inputs are copied: neither they nor their gradients change.
  bool takes_own(std::string_view name, const Tensors& inputs, const Inputs& kinds, const Way& own, const Way& plain);

  /// The number of the quickest of several ways to the same result, each started on the device by attempt(i); one that
  /// throws is out. The first where times do not count; none where they cannot be taken now.
  std::optional<size_t> fastest(const std::string& name, size_t ways, const std::function<void(size_t)>& attempt);

  /// From now on these inputs take ATen's way.
  void give_up(std::string_view name, const Tensors& inputs, std::string_view reason);

 private:
  struct Verdict {
    bool own = false;
    double own_ms = 0, plain_ms = 0, apart = 0;  // apart: relative error of the worst result against fp32 or fp64
  };
  bool settled(const std::string& key, bool own);
  Verdict compare_what_fits(const Tensors& inputs, const Inputs& kinds, const Way& own, const Way& plain) const;
  Verdict compare(const Tensors& inputs, const Inputs& kinds, const Way& own, const Way& plain) const;
  std::vector<double> times_of(size_t ways, const std::function<void(size_t)>& attempt) const;
  void read_file();
  void remember(const nlohmann::json& found) const;
  template <class Answer>
  std::optional<Answer> known(const std::unordered_map<std::string, Answer>& answers, const std::string& key);

  Options options_;
  std::mutex mutex_;  // of what is known; not held while anything is measured, which may ask again
  std::unordered_map<std::string, bool> owns_;
  std::unordered_map<std::string, size_t> fastest_;
};

/// Whether GPUTRAIN_KERNELS=aten switches our own ways off.
bool takes_aten_only();

/// The one of this process; on a machine without a GPU, and in builds without CUDA, it is never asked.
/// GPUTRAIN_KERNEL_CHOICES names the file, instead of kernel_choices.jsonl in ~/.cache/gputrain.
PathChoice& path_choice();

/// The operator by the way that path_choice() finds; an empty `own` is none. See PathChoice::takes_own.
Tensors run(std::string_view name, const Tensors& inputs, const PathChoice::Inputs& kinds, const Way& own,
            const Way& plain);

}  // namespace gputrain::ops
