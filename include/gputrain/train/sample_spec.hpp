// Section `eval.sample` of a job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"

namespace gputrain::train {

/// A message of a conversation.
struct MessageSpec {
  std::string role = "user", content;

  static void describe(config::Description<MessageSpec>& d);
};

/// What the model writes after training, and while it trains, if model and data have a vocabulary.
struct SampleSpec {
  std::optional<config::OneOrMore<std::string>> prompt;
  std::vector<config::OneOrMore<MessageSpec>> messages;
  int64_t max_new_tokens = 300;
  double temperature = 0.8;
  std::optional<int64_t> top_k;
  std::optional<config::Length> interval;

  /// Returns the texts that are continued.
  std::vector<std::string> texts() const;

  static void describe(config::Description<SampleSpec>& d);
};

}  // namespace gputrain::train
