#include <algorithm>
#include <numeric>
#include <utility>

#include <ATen/ops/zeros.h>

#include "gputrain/generation/generate.hpp"
#include "gputrain/generation/suite.hpp"
#include "requests.hpp"

namespace gputrain::generation {
namespace {

/// A question as the model gets it.
struct Prompt {
  size_t item = 0;
  const Question* question = nullptr;
  std::vector<int64_t> tokens;
  int64_t new_tokens = 0;
};

/// The texts of all items that are scored. Texts of an item are neighbours.
struct ScoredItems {
  std::vector<ScoredText> texts;
  std::vector<std::pair<size_t, size_t>> sums;  // item, and which of its sums a text is added to
};

int64_t new_tokens_of(const Question& question, int64_t length) {
  constexpr int64_t kUsual = 256;
  return question.max_new_tokens.value_or(std::max<int64_t>(1, std::min(kUsual, length / 2)));
}

ScoredItems scored_items(const std::vector<SuiteItem>& items, const SuiteEncoder& encoder) {
  ScoredItems found;
  const auto add = [&](ScoredText text, size_t item, size_t sum) {
    found.texts.push_back(std::move(text));
    found.sums.emplace_back(item, sum);
  };
  for (size_t i = 0; i < items.size(); ++i) {
    if (const auto* asked = std::get_if<Choices>(&items[i].asked)) {
      for (size_t choice = 0; choice < asked->choices.size(); ++choice)
        add(encoder.after(asked->context, asked->delimiter + asked->choices[choice], items[i].place), i, choice);
    } else if (const auto* whole = std::get_if<WholeText>(&items[i].asked)) {
      for (ScoredText& window : encoder.windows(whole->text, items[i].place)) add(std::move(window), i, 0);
    }
  }
  return found;
}

/// Returns the prompts of all questions, sorted by number of new tokens, then by length: similar ones stand together.
std::vector<Prompt> prompts_of(const std::vector<SuiteItem>& items, const SuiteEncoder& encoder, int64_t length) {
  std::vector<Prompt> prompts;
  for (size_t i = 0; i < items.size(); ++i) {
    const auto* asked = std::get_if<Question>(&items[i].asked);
    if (asked == nullptr) continue;
    const int64_t count = new_tokens_of(*asked, length);
    prompts.push_back({.item = i,
                       .question = asked,
                       .tokens = encoder.prompt(asked->prompt, count, items[i].place),
                       .new_tokens = count});
  }
  std::ranges::stable_sort(prompts, std::ranges::greater(),
                           [](const Prompt& prompt) { return std::pair(prompt.new_tokens, prompt.tokens.size()); });
  return prompts;
}

/// Returns how many prompts, from the first one on, are continued side by side.
size_t rows_of(std::span<const Prompt> prompts, const BatchLimits& limits) {
  const int64_t longest = std::ssize(prompts[0].tokens) + prompts[0].new_tokens;
  const int64_t most = std::clamp(limits.tokens / longest, int64_t{1}, limits.rows);
  size_t rows = 1;
  while (rows < prompts.size() && std::cmp_less(rows, most) && prompts[rows].new_tokens == prompts[0].new_tokens)
    ++rows;
  return rows;
}

/// Returns the tokens as text: without special ones, and by themselves, as if nothing stood before them.
std::string text_of(std::span<const int64_t> written, const SuiteModel& model) {
  std::vector<int64_t> shown;
  std::ranges::copy_if(written, std::back_inserter(shown), [&](int64_t token) {
    return !model.tokenizer.is_special(token) && !std::ranges::binary_search(model.end_tokens, token);
  });
  return model.tokenizer.decode(shown);
}

bool has_stop(const std::string& text, const Question& question) {
  return std::ranges::any_of(question.stop,
                             [&](const std::string& stop) { return text.find(stop) != std::string::npos; });
}

std::string before_stops(std::string text, const Question& question) {
  for (const std::string& stop : question.stop) text.resize(std::min(text.size(), text.find(stop)));
  return text;
}

/// Writes new tokens of some prompts.
std::vector<Continuation> continued(std::span<const Prompt> prompts, const SuiteModel& model) {
  const bool has_one_length = !model.model.context().device.is_cpu();
  const Options options{.sampling = {},
                        .max_new_tokens = prompts[0].new_tokens,
                        .end_tokens = model.end_tokens,
                        .context = {.length = model.limits.length, .has_one_length = has_one_length},
                        .is_complete =
                            [&](size_t text, std::span<const int64_t> written) {
                              const Question& question = *prompts[text].question;
                              if (question.stop.empty()) return false;
                              return has_stop(text_of(written, model), question) ||
                                     has_stop(model.tokenizer.decode(written),
                                              question);  // a stop may be a special token
                            },
                        .make_graphs = model.make_graphs};
  std::vector<std::vector<int64_t>> texts;
  for (const Prompt& prompt : prompts) texts.push_back(prompt.tokens);
  return generate(model.model, texts, options);
}

/// New tokens of all prompts: each rank writes some, all get all.
class Written {
 public:
  explicit Written(const std::vector<Prompt>& prompts) {
    int64_t size = 0;
    for (const Prompt& prompt : prompts) {
      begins_.push_back(size);
      size += 1 + prompt.new_tokens;  // how many there are, and the tokens
    }
    all_ = at::zeros({size}, at::kLong);
  }

  void set(size_t prompt, const std::vector<int64_t>& tokens) {
    int64_t* const first = all_.mutable_data_ptr<int64_t>() + begins_[prompt];
    *first = std::ssize(tokens);
    std::ranges::copy(tokens, first + 1);
  }
  void gather(comm::Group& ranks) { ranks.all_reduce_sum(all_, "written tokens").wait(); }
  std::span<const int64_t> get(size_t prompt) const {
    const int64_t* const first = all_.const_data_ptr<int64_t>() + begins_[prompt];
    return {first + 1, static_cast<size_t>(*first)};
  }

 private:
  std::vector<int64_t> begins_;
  at::Tensor all_;
};

void answer_questions(const std::vector<Prompt>& prompts, const SuiteModel& model, const BatchLimits& limits,
                      comm::Group& ranks, const ProgressWatch& progress, std::vector<SuiteAnswer>& answers) {
  if (prompts.empty()) return;
  Written written(prompts);
  int turn = 0;
  for (size_t begin = 0; begin < prompts.size(); ++turn) {
    const size_t rows = rows_of(std::span(prompts).subspan(begin), limits);
    if (turn % ranks.size() == ranks.rank()) {
      const auto texts = continued(std::span(prompts).subspan(begin, rows), model);
      for (size_t row = 0; row < rows; ++row) written.set(begin + row, texts[row].tokens);
      if (progress) progress(static_cast<int64_t>(begin + rows), std::ssize(prompts));
    }
    begin += rows;
  }
  written.gather(ranks);
  for (size_t i = 0; i < prompts.size(); ++i)
    answers[prompts[i].item].written = before_stops(text_of(written.get(i), model), *prompts[i].question);
}

}  // namespace

std::vector<SuiteAnswer> answer_suite(const std::vector<SuiteItem>& items, const SuiteModel& model,
                                      const BatchLimits& limits, comm::Group& ranks, const ProgressWatch& progress) {
  const SuiteEncoder encoder(model);
  const ScoredItems scored = scored_items(items, encoder);
  const std::vector<Prompt> prompts = prompts_of(items, encoder, model.limits.length);
  std::vector<SuiteAnswer> answers(items.size());
  const auto sums = log_likelihoods(model.model, scored.texts, limits, ranks, progress);
  for (size_t i = 0; i < sums.size(); ++i) {
    const auto [item, sum] = scored.sums[i];
    auto& found = answers[item].log_likelihoods;
    if (found.size() <= sum) found.resize(sum + 1);
    found[sum] += sums[i];
  }
  answer_questions(prompts, model, limits, ranks, progress, answers);
  return answers;
}

}  // namespace gputrain::generation
