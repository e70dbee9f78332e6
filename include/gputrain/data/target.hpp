#pragma once

#include <optional>
#include <string_view>

namespace gputrain {

/// Target that a model learns from a sample, and gives. An open set: a task of a plug-in has another one, with a name
/// of its own. Two with the same name are the same.
class Target {
 public:
  /// Takes texts that last as long as the program. `name` stands in model.json. `gives` is the output of a model that
  /// learns it, as in "the token that follows", and `model` the models that can; empty: it needs none of its own.
  constexpr explicit Target(std::string_view name, std::string_view gives, std::string_view model = {}) noexcept
      : name_(name), gives_(gives), model_(model) {}

  static const Target next_token;  // the token that follows each token
  static const Target masked;      // tokens that a mask hides
  static const Target label;       // a class
  static const Target labels;      // any number of classes
  static const Target number;      // a number; for an image, one or several
  static const Target tags;        // a class of each word
  static const Target pairs;       // vectors of texts that are alike, or how much they are
  static const Target preference;  // choice of the better of two answers to a prompt
  static const Target rating;      // whether an answer to a prompt is good
  static const Target pixels;      // a class of each pixel of an image

  /// Returns the target of this name, one of the above or one from add(); none: there is no such target.
  static std::optional<Target> named(std::string_view name);
  static void add(const Target& target);

  constexpr std::string_view name() const noexcept { return name_; }
  constexpr std::string_view gives() const noexcept { return gives_; }
  constexpr std::string_view model() const noexcept { return model_; }

  friend constexpr bool operator==(const Target& a, const Target& b) noexcept { return a.name_ == b.name_; }

 private:
  std::string_view name_, gives_, model_;
};

inline constexpr Target Target::next_token{"next_token", "the token that follows", "head: tokens, of model.type: gpt"};
inline constexpr Target Target::masked{"masked_tokens", "tokens that a mask hides", "head: mlm, of model.type: bert"};
inline constexpr Target Target::label{"class", "a class", "head: classifier"};
inline constexpr Target Target::labels{"classes", "sets of classes"};
inline constexpr Target Target::number{"number", "numbers"};
inline constexpr Target Target::tags{"tags", "a class of each token", "head: tagger, of model.type: bert"};
inline constexpr Target Target::pairs{"vector", "a vector of each text", "head: embedder, of model.type: bert"};
inline constexpr Target Target::preference{"preference", "which of two answers is better"};
inline constexpr Target Target::rating{"rating", "whether an answer is good"};
inline constexpr Target Target::pixels{"class_of_each_pixel", "a class of each pixel", "model.type: unet"};

}  // namespace gputrain
