// The `optimizer` and `lr_scheduler` sections of a job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"
#include "gputrain/nn/module.hpp"

namespace gputrain::optim {

/// `optimizer: {type: adamw, lr: 6e-4, betas: [0.9, 0.95], weight_decay: 0.1}`: our options and those of the rule.
struct OptimizerSpec {
  config::Choice type{"adamw"};
  double lr = 1e-3;
  std::vector<std::string> no_decay{"bias", "norm"};
  std::optional<int64_t> lr_base_batch_size;

  static void describe(config::Description<OptimizerSpec>& d);

  /// Peak rate of a job: `lr`, times global batch / base batch if a base batch size is set (linear scaling, Goyal et
  /// al., "Accurate, large minibatch SGD", 2017).
  double peak_lr(int64_t global_batch_size) const;

  /// Whether weight decay applies to parameters of this role.
  bool decays(nn::Role role) const;
};

/// `lr_scheduler: {type: cosine, warmup: 5ep, min_lr: 0}`.
struct LrSchedulerSpec {
  config::Choice type{"constant"};

  static void describe(config::Description<LrSchedulerSpec>& d);
};

}  // namespace gputrain::optim
