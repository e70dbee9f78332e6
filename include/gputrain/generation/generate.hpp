// Continues texts with a language model, several at a time, token by token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "gputrain/device/captured_graph.hpp"
#include "gputrain/generation/sampling.hpp"
#include "gputrain/models/model.hpp"

namespace gputrain::generation {

/// The part of a text that the model sees: its last `length` tokens.
struct ContextWindow {
  int64_t length = 0;
  bool has_one_length = false;  // pads texts that a model reads anew to it, at the end, which a causal model ignores
  bool slides = false;          // a text may become longer; the model then reads it anew for every token
};

/// A maker of recorded graphs for a device. Null: work that repeats is not recorded.
using MakeCapturedGraphs = std::function<std::unique_ptr<device::CapturedGraphs>(at::Device)>;

struct Options {
  Sampling sampling;
  uint64_t seed = 0;
  int64_t max_new_tokens = 256;
  std::vector<int64_t> end_tokens;  // a text ends with any of them
  ContextWindow context;
  /// Returns whether the text with this number is complete after its new tokens; null: end tokens alone say that.
  std::function<bool(size_t text, std::span<const int64_t> written)> is_complete = {};
  /// Records the pass over a token. If it gives graphs, and on every GPU, sizes stay the same from token to token.
  MakeCapturedGraphs make_graphs = device::make_captured_graphs;
};

struct Continuation {
  std::vector<int64_t> tokens;  // new ones; the last one may be an end token
  bool is_ended = false;        // ended by an end token, or complete
  bool is_full = false;         // the model cannot read a longer text
};

/// A function that is called with each new token of the text with this number.
using Watch = std::function<void(size_t text, int64_t token)>;

/// Throws Error(usage), with `place`, for a text that generate() refuses.
void check_prompt(std::span<const int64_t> tokens, const ContextWindow& context, const std::string& place = {});

/// Continues each text. The tokens drawn depend only on weights, text and seed, not on the other texts. Leaves the
/// model in evaluation mode and does not use its random generators. Throws Error(usage) for an empty text, or for one
/// that leaves no room in a context that does not slide.
std::vector<Continuation> generate(models::Model& model, const std::vector<std::vector<int64_t>>& texts,
                                   const Options& options, const Watch& watch = {});

}  // namespace gputrain::generation
