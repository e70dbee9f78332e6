// The learning rate in jobs of timm.
#include <cmath>
#include <cstdlib>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "timm.hpp"

namespace gputrain::app::foreign {
namespace {

using config::Node;

const std::string kCurve = "lr_scheduler.";

std::string epochs_text(double epochs) { return fmt::format("{:g}ep", epochs); }

/// Sets falls by a factor at these epochs.
void set_milestones(Moving& job, const std::vector<double>& epochs) {
  std::string list;
  for (const double one : epochs) list += (list.empty() ? "" : ", ") + epochs_text(one);
  job.set(kCurve + "type", "multistep");
  job.set(kCurve + "milestones", "[" + list + "]");
  job.set(kCurve + "gamma", job.has("decay_rate") ? job.text("decay_rate") : "0.1");
}

struct Lengths {
  explicit Lengths(const Moving& job)
      : is_prefix(job.is_on("warmup_prefix")),
        epochs(job.number("epochs", 300)),
        warmup(job.number("warmup_epochs", 5)),
        cooldown(job.number("cooldown_epochs", 0)),
        before(is_prefix ? warmup : 0) {}

  bool is_prefix;
  double epochs, warmup, cooldown;
  double before;  // of the curve
};

void set_steps(Moving& job, const Lengths& lengths) {
  const double every = job.number("decay_epochs", 90);
  if (lengths.before == 0 || every <= 0) {
    job.set(kCurve + "type", "exponential");
    job.set(kCurve + "step_size", epochs_text(every));
    job.set(kCurve + "gamma", job.has("decay_rate") ? job.text("decay_rate") : "0.1");
    return;
  }
  std::vector<double> falls;
  for (double fall = every; fall < lengths.epochs; fall += every) falls.push_back(lengths.before + fall);
  set_milestones(job, falls);
}

void set_milestones_of(Moving& job, const Lengths& lengths) {
  std::vector<double> falls;
  if (const Node* given = job.given("decay_milestones"))
    for (const Node& part : given->parts) falls.push_back(std::atof(part.text.c_str()));
  if (falls.empty()) falls = {90, 180, 270};
  // timm's epochs count from 0, and it takes milestones as if they did from 1.
  for (double& fall : falls) fall += lengths.before - (job.is_on("sched_on_updates") ? 0 : 1);
  set_milestones(job, falls);
}

void set_wsd(Moving& job, const Lengths& lengths) {
  const double whole = lengths.epochs - (lengths.is_prefix ? 0 : lengths.warmup);
  const double decay = job.number("decay_epochs", 0.2);
  job.set(kCurve + "type", "wsd");
  job.set(kCurve + "decay", epochs_text(std::nearbyint(decay < 1 ? decay * whole : decay)));
  job.set(kCurve + "decay_type", job.has("lr_decay_fn") ? job.text("lr_decay_fn") : "1-sqrt");
}

/// Sets a decay to min_lr over the whole training.
void set_whole_decay(Moving& job, const Lengths& lengths, const std::string& type) {
  job.set(kCurve + "type", type);
  if (type == "polynomial")
    job.set(kCurve + "power", job.has("decay_rate") ? job.text("decay_rate") : "0.1", "timm's decay_rate");
  if (lengths.warmup > 0 && !lengths.is_prefix) job.set(kCurve + "warmup_prefix", "false");
  if (lengths.cooldown > 0) job.set(kCurve + "cooldown", epochs_text(lengths.cooldown));
}

/// Sets the curve; returns whether it has timm's.
bool set_curve(Moving& job, const Lengths& lengths, const std::string& name) {
  if (name == "cosine" || name == "poly") {
    set_whole_decay(job, lengths, name == "cosine" ? "cosine" : "polynomial");
  } else if (name == "step") {
    set_steps(job, lengths);
  } else if (name == "multistep") {
    set_milestones_of(job, lengths);
  } else if (name == "wsd") {
    set_wsd(job, lengths);
  } else if (name == "plateau") {
    job.set(kCurve + "type", "plateau");
    job.set(kCurve + "factor", job.has("decay_rate") ? job.text("decay_rate") : "0.1");
    job.set(kCurve + "patience", job.has("patience_epochs") ? job.text("patience_epochs") : "10");
  } else {
    job.set(kCurve + "type", "constant");
    return name == "constant" || name == "none";
  }
  return true;
}

}  // namespace

void finish_timm_rates(Moving& job) {
  const Lengths lengths(job);
  const std::string name = job.has("sched") ? job.text("sched") : "cosine";
  const bool has_cooldown = name == "cosine" || name == "poly";
  job.set("train.max_epochs",
          fmt::format("{:g}", lengths.epochs + lengths.before + (has_cooldown ? lengths.cooldown : 0)),
          job.has("epochs") ? "" : kTimm);
  if (lengths.cooldown > 0 && !has_cooldown)
    job.tell("cooldown_epochs", "only cosine and polynomial have a cooldown; train.max_epochs is without it");
  if (!set_curve(job, lengths, name))
    job.tell("sched", "no such curve here: `gputrain list lr_schedulers`; the rate stays constant");
  const std::string type = job.value_of(kCurve + "type");
  const bool has_floor = type != "constant" && type != "multistep" && type != "exponential";
  if (has_floor && job.is_on("min_lr")) job.set(kCurve + "min_lr", job.text("min_lr"));
  if (name == "none") return;
  if (lengths.warmup > 0) {
    job.set(kCurve + "warmup", epochs_text(lengths.warmup), job.has("warmup_epochs") ? "" : kTimm);
    job.set(kCurve + "warmup_lr", job.has("warmup_lr") ? job.text("warmup_lr") : "1e-5",
            job.has("warmup_lr") ? "" : kTimm);
  }
  if (!job.is_on("sched_on_updates")) job.set(kCurve + "interval", "1ep", "timm's, without --sched-on-updates");
}

}  // namespace gputrain::app::foreign
