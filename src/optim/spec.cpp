#include "gputrain/optim/spec.hpp"

#include <algorithm>

#include "gputrain/core/error.hpp"
#include "gputrain/optim/optimizer.hpp"
#include "gputrain/optim/schedule.hpp"

namespace gputrain::optim {

using config::Change;

namespace {

const char* name_of(nn::Role role) {
  switch (role) {
    case nn::Role::weight:
      return "weight";
    case nn::Role::bias:
      return "bias";
    case nn::Role::norm:
      return "norm";
    case nn::Role::embedding:
      return "embedding";
  }
  GPUTRAIN_ASSERT(false, "every role has a name");
}

}  // namespace

void OptimizerSpec::describe(config::Description<OptimizerSpec>& d) {
  d.summary("how weights are updated");
  d.choice("type", &OptimizerSpec::type, catalog(), "update rule").instead_of({"name"});
  d.key("lr", &OptimizerSpec::lr, "peak learning rate")
      .above(0)
      .change(Change::needs_accept)
      .instead_of({"learning_rate", "base_lr", "max_lr", "peak_lr"});
  d.key("no_decay", &OptimizerSpec::no_decay, "kinds of parameters without weight decay")
      .choices({"bias", "norm", "embedding"});
  d.key("lr_base_batch_size", &OptimizerSpec::lr_base_batch_size,
        "batch size that lr was chosen for; the rate is scaled in proportion to the global batch size")
      .at_least(1)
      .unit("samples")
      .change(Change::needs_accept)
      .instead_of({"learning_rate_scaling", "auto_scale_lr.base_batch_size"});
}

double OptimizerSpec::peak_lr(int64_t global_batch_size) const {
  if (!lr_base_batch_size) return lr;
  return lr * static_cast<double>(global_batch_size) / static_cast<double>(*lr_base_batch_size);
}

bool OptimizerSpec::decays(nn::Role role) const {
  return std::find(no_decay.begin(), no_decay.end(), name_of(role)) == no_decay.end();
}

void LrSchedulerSpec::describe(config::Description<LrSchedulerSpec>& d) {
  d.summary("how the learning rate changes over training");
  d.choice("type", &LrSchedulerSpec::type, schedules(), "curve").instead_of({"name"});
}

}  // namespace gputrain::optim
