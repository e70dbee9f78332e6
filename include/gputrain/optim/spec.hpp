// The `optimizer` and `lr_scheduler` sections of a job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"
#include "gputrain/device/arena.hpp"
#include "gputrain/nn/module.hpp"

namespace gputrain::optim {

/// `{match: "head.*", lr: 0.1x, weight_decay: 0}`: other settings for the parameters that match.
struct GroupSpec {
  config::OneOrMore<std::string> match;  // glob patterns over full parameter names
  std::optional<std::string> lr;         // a rate, or "0.1x": a factor of the optimizer's
  std::optional<double> weight_decay;

  static void describe(config::Description<GroupSpec>& d);

  bool holds(const std::string& parameter) const;
};

/// `optimizer: {type: adamw, lr: 6e-4, betas: [0.9, 0.95], weight_decay: 0.1}`: the rule's own options beside ours.
struct OptimizerSpec {
  config::Choice type{"adamw"};
  double lr = 1e-3;
  std::vector<std::string> no_decay{"bias", "norm"};
  std::optional<int64_t> lr_base_batch_size;
  std::vector<GroupSpec> groups;
  std::optional<double> layer_decay;
  std::string master = "fp32";

  static void describe(config::Description<OptimizerSpec>& d);

  bool has_narrow_master() const { return master == "bf16"; }

  /// Returns the peak rate of a job: `lr`, times global batch / base batch if a base batch size is set (linear scaling,
  /// Goyal et al., "Accurate, large minibatch SGD", 2017).
  double peak_lr(int64_t global_batch_size) const;

  /// Returns whether weight decay applies to parameters of this role.
  bool decays(nn::ParameterRole role) const;

  /// Returns the settings of a parameter in the model's unit `unit` of `units`: those of the first group that holds it,
  /// and layer decay, which leaves a group's own rate alone.
  device::UpdateSettings settings_of(const std::string& parameter, int64_t unit, int64_t units) const;
};

/// `lr_scheduler: {type: cosine, warmup: 5ep, min_lr: 0}`.
struct LrSchedulerSpec {
  config::Choice type{"constant"};
  std::optional<config::Length> interval;

  static void describe(config::Description<LrSchedulerSpec>& d);
};

}  // namespace gputrain::optim
