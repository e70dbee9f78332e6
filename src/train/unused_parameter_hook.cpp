#include "gputrain/train/unused_parameter_hook.hpp"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::train {

/// Records which parameters the backward pass reaches. A walk over the loss's graph would miss recomputed parts.
class UnusedParameterHook::BackwardObserver {
 public:
  explicit BackwardObserver(models::Model& model) {
    model.each_parameter([this](const std::string& name, nn::Parameter& parameter) {
      if (parameter.value.requires_grad()) observe(name, parameter.value);
    });
  }
  ~BackwardObserver() {
    for (const Watched& one : watched_) one.accumulator->del_post_hook(one.hook);
  }
  BackwardObserver(const BackwardObserver&) = delete;
  BackwardObserver& operator=(const BackwardObserver&) = delete;

  bool has_seen_backward() const {
    return std::any_of(watched_.begin(), watched_.end(), [](const Watched& one) { return one.is_reached; });
  }

  std::vector<std::string> unused() const {
    std::vector<std::string> names;
    for (const Watched& one : watched_) {
      if (!one.is_reached) names.push_back(one.name);
    }
    return names;
  }

 private:
  struct Watched {
    std::string name;
    std::shared_ptr<torch::autograd::Node> accumulator;  // kept alive here, because a parameter does not own it
    uintptr_t hook = 0;
    bool is_reached = false;
  };

  struct Note final : torch::autograd::FunctionPostHook {
    explicit Note(bool& to_set) : is_reached(to_set) {}
    torch::autograd::variable_list operator()(const torch::autograd::variable_list& results,
                                              const torch::autograd::variable_list&) override {
      is_reached = true;
      return results;
    }
    bool& is_reached;
  };

  void observe(const std::string& name, const at::Tensor& parameter) {
    watched_.push_back({.name = name, .accumulator = torch::autograd::impl::grad_accumulator(parameter)});
    Watched& one = watched_.back();
    one.hook = one.accumulator->add_post_hook(std::make_unique<Note>(one.is_reached));
  }

  std::deque<Watched> watched_;  // a deque: addresses of the flags stay valid
};

namespace {

std::string listed(const std::vector<std::string>& names) {
  constexpr size_t kMost = 8;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMost); ++i) text += (i == 0 ? "'" : ", '") + names[i] + "'";
  return names.size() <= kMost ? text : text + " and " + std::to_string(names.size() - kMost) + " more";
}

}  // namespace

UnusedParameterHook::UnusedParameterHook(models::Model& model) : model_(model) {}

UnusedParameterHook::~UnusedParameterHook() = default;

void UnusedParameterHook::before_training(Progress&) {
  if (!is_done_) observer_ = std::make_unique<BackwardObserver>(model_);
}

Stop UnusedParameterHook::after_step(Progress& progress, const StepResult&, bool) {
  // If this rank had only padding, it waits for the next step.
  if (is_done_ || !observer_->has_seen_backward()) return Stop::none;
  is_done_ = true;
  const auto names = std::exchange(observer_, nullptr)->unused();
  if (names.empty()) return Stop::none;
  log::warning(
      "the loss of step " + std::to_string(progress.step) + " does not reach " +
      counted(static_cast<int64_t>(names.size()), "parameter") + ": " + listed(names) +
      "; parameters without a gradient learn nothing, and weight decay shrinks them. If this is not intended, check "
      "whether forward() uses them, and does not detach them");
  return Stop::none;
}

}  // namespace gputrain::train
