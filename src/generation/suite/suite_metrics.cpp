#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/generation/suite.hpp"
#include "whitespace.hpp"

namespace gputrain::generation {
namespace {

int64_t characters_of(const std::string& text) {
  return std::ranges::count_if(text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

/// Returns whether the answer is the first of the choices with the highest score.
double is_best(const std::vector<double>& scores, int64_t answer) {
  return std::ranges::max_element(scores) - scores.begin() == answer ? 1 : 0;
}

ItemScore score_of_choices(const Choices& asked, const std::vector<double>& log_likelihoods) {
  GPUTRAIN_ASSERT(log_likelihoods.size() == asked.choices.size(), "each choice has a log-likelihood");
  std::vector<double> by_characters, by_bytes;
  for (size_t i = 0; i < log_likelihoods.size(); ++i) {
    by_characters.push_back(log_likelihoods[i] / static_cast<double>(characters_of(asked.choices[i])));
    by_bytes.push_back(log_likelihoods[i] / static_cast<double>(asked.choices[i].size()));
  }
  return {{"acc", is_best(log_likelihoods, asked.answer)},
          {"acc_norm", is_best(by_characters, asked.answer)},
          {"acc_bytes", is_best(by_bytes, asked.answer)}};
}

std::vector<double> values_of(const std::vector<ItemScore>& scores, const std::string& name) {
  std::vector<double> values;
  for (const ItemScore& score : scores) {
    if (const auto found = score.find(name); found != score.end()) values.push_back(found->second);
  }
  return values;
}

double sum_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum;
}

SuiteMetric mean_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  SuiteMetric metric{.value = sum_of(values) / count, .stderr_of_mean = {}, .count = std::ssize(values)};
  if (values.size() < 2) return metric;
  double squares = 0;
  for (const double value : values) squares += (value - metric.value) * (value - metric.value);
  metric.stderr_of_mean = std::sqrt(squares / (count - 1)) / std::sqrt(count);
  return metric;
}

}  // namespace

ItemScore score_of(const SuiteItem& item, const SuiteAnswer& answer) {
  if (const auto* asked = std::get_if<Choices>(&item.asked)) return score_of_choices(*asked, answer.log_likelihoods);
  if (const auto* asked = std::get_if<WholeText>(&item.asked))
    return {{"loglikelihood", answer.log_likelihoods.at(0)},
            {"bytes", static_cast<double>(asked->text.size())},
            {"words", static_cast<double>(parts_between_spaces(asked->text))}};
  return {{"exact_match", answer.written == std::get<Question>(item.asked).answer ? 1 : 0}};
}

SuiteMetrics metrics_of(const std::vector<ItemScore>& scores) {
  SuiteMetrics metrics;
  for (const char* name : {"acc", "acc_norm", "acc_bytes", "exact_match"}) {
    if (const auto values = values_of(scores, name); !values.empty()) metrics[name] = mean_of(values);
  }
  const auto likelihoods = values_of(scores, "loglikelihood");
  if (likelihoods.empty()) return metrics;
  const double loss = -sum_of(likelihoods), bytes = sum_of(values_of(scores, "bytes"));
  const auto add = [&](const char* name, double value) {
    metrics[name] = {.value = value, .stderr_of_mean = {}, .count = std::ssize(likelihoods)};
  };
  add("bits_per_byte", loss / bytes / std::numbers::ln2);
  add("byte_perplexity", std::exp(loss / bytes));
  add("word_perplexity", std::exp(loss / sum_of(values_of(scores, "words"))));
  return metrics;
}

}  // namespace gputrain::generation
