#include "gputrain/optim/spec.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "gputrain/config/name_patterns.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/optim/optimizer.hpp"
#include "gputrain/optim/schedule.hpp"

namespace gputrain::optim {

using config::Change;

namespace {

const char* name_of(nn::ParameterRole role) {
  switch (role) {
    case nn::ParameterRole::weight:
      return "weight";
    case nn::ParameterRole::bias:
      return "bias";
    case nn::ParameterRole::norm:
      return "norm";
    case nn::ParameterRole::embedding:
      return "embedding";
  }
  GPUTRAIN_ASSERT(false, "every role has a name");
}

struct Rate {
  double value = 1;
  bool is_factor = true;
};

/// Reads "1e-4" or "0.1x"; nothing for any other text, and for what is not above 0.
std::optional<Rate> rate_in(std::string_view text) {
  Rate rate{.value = 0, .is_factor = text.ends_with('x')};
  if (rate.is_factor) text.remove_suffix(1);
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), rate.value);
  const bool is_number = error == std::errc() && rest == text.data() + text.size();
  return is_number && rate.value > 0 && std::isfinite(rate.value) ? std::optional(rate) : std::nullopt;
}

}  // namespace

void GroupSpec::describe(config::Description<GroupSpec>& d) {
  d.summary("other settings for a part of the parameters");
  d.key("match", &GroupSpec::match, "patterns of full parameter names: head.*, *.bias; * stands for anything")
      .required()
      .aliases({"params"});
  d.key("lr", &GroupSpec::lr,
        "peak rate of these, or a factor such as 0.1x of the optimizer's; both follow the schedule");
  d.key("weight_decay", &GroupSpec::weight_decay, "instead of the optimizer's; optimizer.no_decay still applies")
      .at_least(0);
  d.check([](const GroupSpec& group, config::SpecIssues& issues) {
    if (group.lr && !rate_in(*group.lr))
      issues.add("lr", "must be a rate above 0 such as 1e-4, or a factor such as 0.1x, not '" + *group.lr + "'");
    if (group.match.values.empty()) issues.add("match", "a group needs a pattern", "match: \"*\" takes all");
  });
}

bool GroupSpec::holds(const std::string& parameter) const {
  return std::ranges::any_of(match.values,
                             [&](const std::string& pattern) { return config::matches(pattern, parameter); });
}

void OptimizerSpec::describe(config::Description<OptimizerSpec>& d) {
  d.summary("how weights are updated");
  d.choice("type", &OptimizerSpec::type, catalog(), "update rule").aliases({"name"});
  d.key("lr", &OptimizerSpec::lr, "peak learning rate")
      .above(0)
      .change(Change::needs_accept)
      .aliases({"learning_rate", "base_lr", "max_lr", "peak_lr"});
  d.key("no_decay", &OptimizerSpec::no_decay, "kinds of parameters without weight decay")
      .choices({"bias", "norm", "embedding"});
  d.key("lr_base_batch_size", &OptimizerSpec::lr_base_batch_size,
        "batch size that lr was chosen for; the rate is scaled in proportion to the global batch size")
      .at_least(1)
      .unit("samples")
      .change(Change::needs_accept)
      .aliases({"learning_rate_scaling", "auto_scale_lr.base_batch_size"});
  d.key("groups", &OptimizerSpec::groups,
        "other settings for parameters by name, [{match, lr, weight_decay}]; the first group that matches counts")
      .change(Change::needs_accept)
      .aliases({"param_groups", "parameter_groups"})
      .aliases("loraplus_lr_ratio",
               [](const std::string& ratio) { return "[{match: \"*.lora_B.weight\", lr: " + ratio + "x}]"; });
  d.key("layer_decay", &OptimizerSpec::layer_decay,
        "the rate falls by this factor from each unit of the model to the one before it: the head keeps all of it, the "
        "stem gets least; null: one rate")
      .range(0, 1)
      .above(0)
      .change(Change::needs_accept)
      .aliases({"layer_decay_rate", "layer_lr_decay", "llrd"});
  d.key(
       "master", &OptimizerSpec::master,
       "type of the weights that are updated, with precision: bf16. bf16: there is no fp32 copy of them, gradients are "
       "bf16 too, and updates, in fp32, are rounded stochastically")
      .choices({"fp32", "bf16"})
      .aliases({"master_dtype", "main_params_dtype", "bf16_stochastic_round", "stochastic_rounding"});
}

double OptimizerSpec::peak_lr(int64_t global_batch_size) const {
  if (!lr_base_batch_size) return lr;
  return lr * static_cast<double>(global_batch_size) / static_cast<double>(*lr_base_batch_size);
}

bool OptimizerSpec::decays(nn::ParameterRole role) const {
  return std::find(no_decay.begin(), no_decay.end(), name_of(role)) == no_decay.end();
}

device::UpdateSettings OptimizerSpec::settings_of(const std::string& parameter, int64_t unit, int64_t units) const {
  const auto group = std::ranges::find_if(groups, [&](const GroupSpec& one) { return one.holds(parameter); });
  const bool has_group = group != groups.end();
  Rate rate;
  if (has_group && group->lr) rate = rate_in(*group->lr).value();
  device::UpdateSettings settings{.lr_factor = rate.is_factor ? rate.value : rate.value / lr};
  if (rate.is_factor && layer_decay)
    settings.lr_factor *= std::pow(*layer_decay, static_cast<double>(units - 1 - unit));
  if (has_group) settings.weight_decay = group->weight_decay;
  return settings;
}

void LrSchedulerSpec::describe(config::Description<LrSchedulerSpec>& d) {
  d.summary("how the learning rate changes over training");
  d.choice("type", &LrSchedulerSpec::type, schedules(),
           "curve over the whole training; a run that goes on with another global batch stays at the same share of it")
      .aliases({"name"});
  d.key("interval", &LrSchedulerSpec::interval,
        "length after which the rate follows the curve again, such as 1ep; null: at each step")
      .above(0);
}

}  // namespace gputrain::optim
