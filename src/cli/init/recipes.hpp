// Recipes: the jobs of the repository's folder configs, which the program has inside.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gputrain::app {

struct Recipe {
  std::string_view name, text;

  /// Returns the first paragraph of its head.
  std::string summary() const;
  /// Returns what a step of it needs, "18.4 GB with Qwen3-8B", by the line "# A step needs ..." of its head; empty: it
  /// has none.
  std::string memory() const;
};

/// Returns all, sorted by name.
const std::vector<Recipe>& recipes();

/// Throws Error(usage) if there is none of this name.
const Recipe& recipe_named(std::string_view name);

}  // namespace gputrain::app
