// Text of the page configs/compatibility.md.
#include <string>

#include <fmt/format.h>

#include "gputrain/optim/optimizer.hpp"
#include "gputrain/setup/compatibility.hpp"

namespace gputrain::app {
namespace {

/// Shows keys as code.
std::string shown(const std::string& feature) {
  const bool is_prose = feature.starts_with("a ") || feature.starts_with("an ") || feature.find('\'') != feature.npos;
  return is_prose ? feature : "`" + feature + "`";
}

std::string row_of(const CompatibilityRule& rule) {
  std::string why = rule.why;
  for (const std::string name : {"model", "task", "optimizer", "curve"})
    if (const size_t at = why.find("{" + name + "}"); at != why.npos) why.replace(at, name.size() + 2, "the " + name);
  const std::string third = rule.and_also.empty() ? "" : " together with " + shown(rule.and_also);
  return fmt::format("| {} | {} {}{} | {} | {} |\n", shown(rule.one), words_of(rule.relation), shown(rule.other), third,
                     why, rule.instead);
}

/// Names the optimizers that can do this.
std::string optimizers_with(bool optim::Abilities::*ability) {
  const optim::OptimizerCatalog& rules = optim::catalog();
  std::string names;
  for (const std::string& name : rules.names()) {
    const config::Choice choice{.name = name, .options = rules.find(name)->schema->create()};
    if (rules.abilities(choice).*ability) names += (names.empty() ? "`" : ", `") + name + "`";
  }
  return names;
}

}  // namespace

std::string compatibility_page() {
  std::string page =
      "# What does not go together\n\n"
      "A row is about two features of a job, and stands at the key of one of them. To find all rows of a key, search "
      "the page for it. `gputrain validate` refuses a job by the rows with \"does not go with\" and \"needs\", and "
      "tells all reasons at once. `gputrain run` does the same before it opens anything; what needs more ranks than "
      "there are has no effect then, and is not refused. `gputrain plan` leaves out such settings.\n\n"
      "\"has no effect with\": the job runs without the feature. \"may not go with\": it depends on which parameters "
      "are named. The column \"instead\" says what to write at the key of the first column. The program writes this "
      "page.\n\n"
      "Two features go together if no row is about both. Whether a value fits the model and the data is checked "
      "besides.\n\n"
      "Names that you may search for: LoRA is `model.adapter`. ZeRO 1, 2 and 3 are `parallel.shard: optimizer`, "
      "`gradients` and `parameters`; FSDP is the last one, HSDP is `parallel.replicate`. Gradient checkpointing is "
      "`train.activation_checkpointing`. EMA and SWA are `train.ema` and `train.swa`.\n\n";
  page += "Optimizers that update whole matrices: " + optimizers_with(&optim::Abilities::whole_tensors) +
          ". With an average of the weights: " + optimizers_with(&optim::Abilities::has_average) +
          ". That do not need their state on the device: " + optimizers_with(&optim::Abilities::in_parts) + ".\n\n";
  page += "| feature | | why | instead |\n|-|-|-|-|\n";
  for (const CompatibilityRule& rule : compatibility_rules()) page += row_of(rule);
  return page;
}

}  // namespace gputrain::app
