// Keys that several rules have.
#pragma once

#include <string>
#include <utility>

#include "gputrain/config/describe.hpp"

namespace gputrain::optim {

template <class Spec>
void describe_betas(config::Description<Spec>& d,
                    std::string help = "decay rates of the running averages of the gradient and of its square") {
  d.key("betas", &Spec::betas, std::move(help))
      .elements(2)
      .at_least(0)
      .below(1)
      .change(config::Change::needs_accept)
      .aliases({"adam_betas"});
}

/// Describes the key but for its least value.
template <class Spec>
config::Key& describe_eps(config::Description<Spec>& d, std::string help = "added to the root of the second average") {
  return d.key("eps", &Spec::eps, std::move(help)).change(config::Change::needs_accept).aliases({"adam_epsilon"});
}

template <class Spec>
void describe_weight_decay(config::Description<Spec>& d,
                           std::string help = "share of a weight, times the learning rate, subtracted at each step") {
  d.key("weight_decay", &Spec::weight_decay, std::move(help))
      .at_least(0)
      .change(config::Change::needs_accept)
      .aliases({"wd"});
}

}  // namespace gputrain::optim
