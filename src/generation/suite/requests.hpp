// The requests of a suite to a model, in tokens.
#pragma once

#include <string>
#include <vector>

#include "gputrain/generation/suite.hpp"

namespace gputrain::generation {

/// Writes texts as tokens in the way of HFLM of lm-evaluation-harness. All throw Error(data) with the item's place.
class SuiteEncoder {
 public:
  explicit SuiteEncoder(const SuiteModel& model);

  /// Encodes a choice after its context: both are encoded together, and the context alone says where the choice begins.
  /// A choice that has no token of its own there is encoded alone. White space at the end of the context counts with
  /// the choice. Cut at the front to what the model reads.
  ScoredText after(const std::string& context, const std::string& continuation, const std::string& place) const;

  /// Cuts a text into windows of what the model reads, so that each token is scored once. The first is scored after
  /// first_token; the last window begins earlier, so that it is as long as the others.
  std::vector<ScoredText> windows(const std::string& text, const std::string& place) const;

  /// Returns a prompt, cut at the front to leave room for this many new tokens.
  std::vector<int64_t> prompt(const std::string& text, int64_t new_tokens, const std::string& place) const;

 private:
  std::vector<int64_t> encode(const std::string& text, bool is_begin, const std::string& place) const;
  int64_t first_token(const std::string& place) const;

  const SuiteModel& model_;
  std::string first_spelled_;  // texts that begin with it get no second one
};

}  // namespace gputrain::generation
