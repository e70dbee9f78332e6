#include <algorithm>
#include <cmath>
#include <functional>

#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softmax.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <nlohmann/json.hpp>

#include "gputrain/tasks/entities.hpp"
#include "json_line.hpp"
#include "outputs.hpp"

namespace gputrain::app {
namespace {

using Json = nlohmann::ordered_json;

std::vector<float> values_of(const at::Tensor& row) {
  const at::Tensor values = row.contiguous();
  return {values.const_data_ptr<float>(), values.const_data_ptr<float>() + values.numel()};
}

Json by_name(const std::vector<std::string>& names, const std::vector<float>& probabilities) {
  Json all = Json::object();
  for (size_t i = 0; i < probabilities.size(); ++i) all[names.at(i)] = probabilities[i];
  return all;
}

/// Writer of the model's output for one text.
class Lines {
 public:
  Lines(const std::vector<std::string>& names, bool json)
      : names_(names), json_(json), has_entities_(tasks::mark_entities(names)) {}

  std::string of(Target gives, const records::GivenText& text, const at::Tensor& output) const {
    if (gives == Target::number && output.numel() == 1) return number(output);
    if (gives == Target::labels) return classes(values_of(with_names(at::sigmoid(output))));
    if (gives == Target::tags) return tags(text, output);
    return gives == Target::label ? best_class(values_of(with_names(at::softmax(output, -1))))
                                  : numbers(values_of(output));
  }

 private:
  at::Tensor with_names(const at::Tensor& outputs) const { return trained::with_names(outputs, names_); }

  std::string number(const at::Tensor& output) const {
    const float value = output.const_data_ptr<float>()[0];
    return json_ ? json_line({{"number", value}}) : fmt::format("{}\n", value);
  }

  /// Writes several numbers, or what a task of a plug-in learns.
  std::string numbers(const std::vector<float>& values) const {
    return json_ ? json_line({{"numbers", values}}) : fmt::format("{}\n", fmt::join(values, "\t"));
  }

  std::string best_class(const std::vector<float>& probabilities) const {
    const auto best = static_cast<size_t>(std::ranges::max_element(probabilities) - probabilities.begin());
    if (!json_) return fmt::format("{}\t{:.4f}\n", names_.at(best), probabilities[best]);
    return json_line({{"label", names_.at(best)},
                      {"probability", probabilities[best]},
                      {"probabilities", by_name(names_, probabilities)}});
  }

  std::string classes(const std::vector<float>& probabilities) const {
    constexpr float kLikely = 0.5F;
    std::string line;
    Json likely = Json::array();
    for (size_t i = 0; i < probabilities.size(); ++i) {
      if (probabilities[i] <= kLikely) continue;
      line += fmt::format("{}{} {:.4f}", line.empty() ? "" : "\t", names_.at(i), probabilities[i]);
      likely.push_back(names_.at(i));
    }
    if (!json_) return line + "\n";
    return json_line({{"labels", likely}, {"probabilities", by_name(names_, probabilities)}});
  }

  /// Writes the tag of each word. Words beyond the most that the model reads, and words without a token, have none:
  /// null, or "_" as in CoNLL's files.
  std::string tags(const records::GivenText& text, const at::Tensor& output) const {
    const auto [most, numbers] = with_names(at::softmax(output, -1)).max(-1);
    std::vector<float> probabilities = values_of(most);
    probabilities.resize(text.words.size(), NAN);
    std::vector<std::string> tags(text.words.size());
    for (size_t i = 0; i < tags.size(); ++i)
      if (!std::isnan(probabilities[i])) tags[i] = names_.at(static_cast<size_t>(numbers.const_data_ptr<int64_t>()[i]));
    if (json_) return json_line(tagged(text, tags, probabilities));
    std::string lines;
    for (size_t i = 0; i < tags.size(); ++i) lines += text.words[i] + "\t" + (tags[i].empty() ? "_" : tags[i]) + "\n";
    return lines + "\n";
  }

  Json tagged(const records::GivenText& text, std::vector<std::string> tags,
              const std::vector<float>& probabilities) const {
    Json all{{"words", text.words}, {"tags", tags}, {"probabilities", probabilities}};
    for (size_t i = 0; i < tags.size(); ++i)
      if (tags[i].empty()) all["tags"][i] = all["probabilities"][i] = nullptr;
    if (!has_entities_) return all;
    all["entities"] = Json::array();
    std::ranges::replace(tags, "", "O");
    for (const tasks::Entity& entity : tasks::entities_in(tags)) {
      std::string words;
      for (int64_t i = entity.begin; i < entity.end; ++i)
        words += (words.empty() ? "" : " ") + text.words[static_cast<size_t>(i)];
      all["entities"].push_back({{"kind", entity.kind}, {"text", words}, {"begin", entity.begin}, {"end", entity.end}});
    }
    return all;
  }

  const std::vector<std::string>& names_;
  bool json_, has_entities_;
};

}  // namespace

std::string predictions_of(trained::Model& model, const TextsToRead& texts, bool json) {
  const Target gives = model.signature.gives;
  const TextOutputs all = outputs_of(model, texts, gives);
  const Lines lines(model.class_names, json);
  std::string text;
  for (size_t i = 0; i < all.texts.size(); ++i) text += lines.of(gives, all.texts[i], all.outputs[i]);
  return text;
}

}  // namespace gputrain::app
