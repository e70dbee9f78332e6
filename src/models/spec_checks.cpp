#include "gputrain/models/spec_checks.hpp"

#include <algorithm>
#include <string>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::models {

int64_t classes_of(const std::optional<int64_t>& num_classes, const DataFacts& facts, const std::string& key) {
  if (!num_classes && facts.num_classes < 1) {
    throw Error(ExitCode::usage, {.what = "the data does not say how many classes there are",
                                  .where = "model.config." + key,
                                  .hint = "set " + key});
  }
  if (num_classes && *num_classes < facts.num_classes && key == "vocab_size") {
    throw Error(ExitCode::usage,
                {.what = "the model has rows for " + counted(*num_classes, "token") + ", and the tokenizer has " +
                         std::to_string(facts.num_classes),
                 .where = "model.config.vocab_size",
                 .hint = "vocab_size: " + std::to_string(facts.num_classes) +
                         ", or leave it out; pretrained weights need their own tokenizer, or rows for tokens that were "
                         "added to it, such as [PAD]: model.resize_token_embeddings() of transformers"});
  }
  if (num_classes && *num_classes < facts.num_classes) {
    throw Error(ExitCode::usage, {.what = key + " is " + std::to_string(*num_classes) + ", but the data has " +
                                          std::to_string(facts.num_classes),
                                  .where = "model.config." + key,
                                  .hint = key + ": " + std::to_string(facts.num_classes) + ", or leave it out"});
  }
  return num_classes.value_or(facts.num_classes);
}

std::vector<int64_t> windows_of(int64_t layers, const std::optional<int64_t>& window,
                                const std::vector<std::string>& layer_types) {
  std::vector<int64_t> windows(static_cast<size_t>(layers), window.value_or(0));
  for (size_t i = 0; i < windows.size() && !layer_types.empty(); ++i) {
    if (layer_types[i % layer_types.size()] != kSlidingAttention) windows[i] = 0;
  }
  return windows;
}

void check_layer_types(int64_t layers, const std::optional<int64_t>& window,
                       const std::vector<std::string>& layer_types, config::SpecIssues& issues) {
  if (std::ssize(layer_types) > layers) {
    issues.add("layer_types",
               "names " + counted(std::ssize(layer_types), "layer") + ", but n_layer is " + std::to_string(layers),
               "a shorter list is repeated");
  }
  const bool has_window = layer_types.empty() || std::ranges::find(layer_types, kSlidingAttention) != layer_types.end();
  if (window && !has_window) {
    issues.add("layer_types", "none of these layers has the window",
               "leave out window, or add " + std::string(kSlidingAttention));
  }
  if (!window && !layer_types.empty() && has_window) {
    issues.add("layer_types", std::string(kSlidingAttention) + " needs a window", "for instance window: 4096");
  }
}

void check_division(config::SpecIssues& issues, const char* key, const char* whole_name, int64_t whole,
                    const char* part_name, int64_t part) {
  if (whole % part == 0) return;
  issues.add(key,
             std::string(whole_name) + " (" + std::to_string(whole) + ") must be a multiple of " + part_name + " (" +
                 std::to_string(part) + ")",
             "for instance " + std::string(whole_name) + ": " + std::to_string((whole / part + 1) * part));
}

ImageShape image_shape_of(const DataFacts& facts) {
  const auto& shape = facts.input_shape;
  if (shape.size() == 3) return {shape[0], shape[1], shape[2]};
  throw Error(ExitCode::usage, {.what = "this model needs images, but the data has samples of " +
                                        std::to_string(shape.size()) + " dim(s)",
                                .where = "model.type",
                                .hint = "use gpt for tokens, mlp for anything else"});
}

}  // namespace gputrain::models
