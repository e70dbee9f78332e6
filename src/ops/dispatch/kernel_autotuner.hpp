// Chooses how an operator runs on a GPU: by ATen, or by our own kernel. The first time a shape occurs, both run on it;
// ours is chosen if it is correct and faster. Choices are stored in a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <limits>
#include <map>
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

#include "trials.hpp"

namespace gputrain::ops {

using Tensors = std::vector<at::Tensor>;
/// An operator on the autograd graph: results from inputs, some of which may be undefined.
using OpImpl = std::function<Tensors(const Tensors&)>;

/// A way of our own throws this, before it changes anything, if there is no kernel for its inputs after all.
struct NoKernel : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The same, for now: see KernelAutotuner::begin_rough_choices().
struct NoKernelYet : NoKernel {
  using NoKernel::NoKernel;
};

class KernelAutotuner {
 public:
  enum class Mode { measure, never };  // never: always ATen's way

  struct Options {
    Mode mode = Mode::measure;
    std::string machine;         // GPU and versions: choices of other machines do not count
    std::filesystem::path file;  // one line of JSON per choice; empty: no file, and crashes are not remembered
    bool time_counts = true;     // false: our way if correct, so that a run does not depend on timing
    std::function<double(const std::function<void()>&)> milliseconds;  // time of a piece of work
    std::function<bool()> can_measure;                                 // false during graph capture, for instance
    std::function<std::shared_ptr<void>()> aside = {};  // while held, allocations do not count towards the run's peak
  };

  explicit KernelAutotuner(Options options);

  /// Most elements of an input or a result in a comparison. Larger ones are cut in their rows, further if memory is
  /// short.
  static constexpr int64_t kMostElements = int64_t{1} << 26;

  /// Properties of an operator and of its first inputs.
  struct Inputs {
    size_t batched = 1;               // inputs that share their rows, the first dim or the first two of three: part of
                                      // them may be compared
    size_t differentiable = 1;        // inputs that may require a gradient
    int64_t growth = 1;               // elements of the largest result per element of the first input
    bool whole = false;               // kernels depend on the exact size: compare all of it if memory suffices
    bool replicated = false;          // all ranks need the same bits: our way if correct, without timing
    bool has_outputs_by_row = false;  // each row of the other inputs gives an output: part of them may be compared
    int version = 1;                  // of our way: stored choices about another version do not count
  };

  /// Returns whether the operator runs our way, forward and backward. The answer is the same with and without a
  /// gradient, so that recomputation gives the same results. Inputs are copied: neither they nor their gradients
  /// change.
  bool use_custom_kernel(std::string_view name, const Tensors& inputs, const Inputs& kinds, const OpImpl& custom,
                         const OpImpl& reference);

  /// Returns the index of the fastest of several ways to the same result; attempt(i) starts one on the device. Excludes
  /// ways that throw. 0 if times do not count; none if they cannot be measured now. Asks `may_try` before a trial: if
  /// it says no, settles on 0. Throws NoKernel as begin_trial() does.
  std::optional<size_t> fastest(const std::string& name, size_t ways, const std::function<void(size_t)>& attempt,
                                const std::function<bool()>& may_try = {});
  /// Takes this for the fastest way from now on, also in later attempts of this run.
  void settle(const std::string& name, size_t way);

  /// Uses ATen's way for these inputs from now on.
  void give_up(std::string_view name, const Tensors& inputs, const Inputs& kinds, std::string_view reason);

  /// Call before kernels run that may crash inside a library, and keep the result while they do. Throws NoKernel if two
  /// earlier processes ended during this trial, so that the next start does not end there again.
  [[nodiscard]] std::shared_ptr<void> begin_trial(const std::string& key);
  Trials& trials() { return trials_; }
  const std::filesystem::path& file() const noexcept { return options_.file; }

  /// Ends trials once they have taken so many seconds. For a new shape, an operator then takes the way that it took for
  /// the last one, and libraries the way that they propose. Choices that must not depend on time are not limited.
  void limit_trials(double seconds);
  /// Returns whether that time is used up.
  bool has_spent_trials() const;

  /// Builds nothing that takes seconds until end_rough_choices(), which forgets what operators have chosen since. For
  /// steps that only measure, such as those of a search for a batch size.
  void begin_rough_choices();
  void end_rough_choices();
  bool chooses_roughly() const;

  /// Keeps the choices that this process uses in `folder` too, from now on. Those found there count before all others:
  /// an attempt of a run then computes with the kernels of the attempt before, also on a new machine.
  void keep_in(const std::filesystem::path& folder);
  /// Returns that folder; empty before keep_in().
  std::filesystem::path kept_in() const;

 private:
  template <class Value>
  struct Answer {
    Value value;
    bool is_kept = false;  // in the folder of keep_in(), or it does not go there
    bool is_used = false;
  };
  /// Returns a failure of this attempt: the next one may try again.
  static Answer<bool> not_kept() { return {.value = false, .is_kept = true}; }
  template <class Value>
  using Answers = std::unordered_map<std::string, Answer<Value>>;
  bool settled(const std::string& key, Answer<bool> answer);
  void note_way(std::string_view name, bool is_own);
  bool way_of_last_shape(std::string_view name) const;
  template <class Value>
  void keep(const char* kind, const std::string& key, Answer<Value>& answer) const;
  std::vector<double> times_of(size_t ways, const std::function<void(size_t)>& attempt) const;
  void read_file(const std::filesystem::path& file, bool is_kept);
  void append(const std::filesystem::path& file, nlohmann::json entry) const;
  bool remember(nlohmann::json entry);
  template <class Value>
  std::optional<Value> known(Answers<Value>& answers, const char* kind, const std::string& key);

  Options options_;
  Trials trials_;
  mutable std::mutex mutex_;  // guards what follows; not held during a measurement, which may ask again
  Answers<bool> uses_custom_;
  Answers<size_t> fastest_;
  std::map<std::string, bool, std::less<>> last_;  // whether each operator took our way for the last shape
  double most_seconds_ = std::numeric_limits<double>::infinity();
  double spent_before_rough_ = 0;
  std::optional<Answers<bool>> before_rough_;     // during rough choices: the answers before them
  std::unordered_map<std::string, int> crashes_;  // processes that ended during the trial, since its last result
  std::filesystem::path kept_file_;               // empty before keep_in()
};

/// Returns whether GPUTRAIN_KERNELS=aten is set: operators then never use our own kernels.
bool takes_aten_only();

/// Returns the instance of this process; never used without a GPU or in builds without CUDA. GPUTRAIN_KERNEL_CHOICES
/// sets the path of its file; the default is ~/.cache/gputrain/kernel_choices.jsonl.
KernelAutotuner& kernel_autotuner();
/// Returns whether choose_kernels_without_clock() was called: times do not count.
bool has_no_clock();

/// Runs the operator in the way that kernel_autotuner() selects; an empty `custom` means ATen. See
/// KernelAutotuner::use_custom_kernel.
Tensors run(std::string_view name, const Tensors& inputs, const KernelAutotuner::Inputs& kinds, const OpImpl& custom,
            const OpImpl& reference);

}  // namespace gputrain::ops
