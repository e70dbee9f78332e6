#include "spec_checks.hpp"

#include <string>

#include "gputrain/core/error.hpp"

namespace gputrain::models {

int64_t classes_of(const std::optional<int64_t>& num_classes, const DataFacts& facts, const std::string& key) {
  if (!num_classes && facts.num_classes < 1) {
    throw Error(ExitCode::usage, {.what = "the data does not say how many classes there are",
                                  .where = "model.config." + key,
                                  .hint = "set " + key});
  }
  if (num_classes && *num_classes < facts.num_classes) {
    throw Error(ExitCode::usage, {.what = key + " is " + std::to_string(*num_classes) + ", but the data has " +
                                          std::to_string(facts.num_classes),
                                  .where = "model.config." + key,
                                  .hint = key + ": " + std::to_string(facts.num_classes) + ", or leave it out"});
  }
  return num_classes.value_or(facts.num_classes);
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
