#include "gputrain/generation/generate.hpp"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include <ATen/core/grad_mode.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/random.hpp"
#include "next_tokens.hpp"
#include "reader.hpp"

namespace gputrain::generation {
namespace {

/// Returns the numbers that a text is drawn with: a stream of its own, so that other texts do not change it.
RandomStream numbers_for(const std::vector<int64_t>& text, uint64_t seed) {
  uint64_t stream = stable_hash("sample");
  for (const int64_t token : text) stream = mix(stream, static_cast<uint64_t>(token));
  return {seed, stream};
}

/// Texts that are being continued, side by side.
class Batch {
 public:
  Batch(const std::vector<std::vector<int64_t>>& texts, const Options& options)
      : options_(options), texts_(texts), done_(texts.size()) {
    for (size_t i = 0; i < texts.size(); ++i) {
      numbers_.push_back(numbers_for(texts[i], options.seed));
      rows_.push_back(i);
    }
  }

  const std::vector<std::vector<int64_t>>& texts() const { return texts_; }
  std::vector<Continuation> take() { return std::move(done_); }

  /// Adds to each text that goes on the token that its logits [texts, vocabulary] give.
  void add(const at::Tensor& logits, const Watch& watch) {
    std::vector<Draw> draws;
    for (size_t row = 0; row < rows_.size(); ++row)
      if (!is_complete(row)) draws.push_back({row, texts_[row], numbers_[rows_[row]].uniform()});
    const std::vector<int64_t> tokens = next_tokens(logits, draws, options_.sampling);
    for (size_t i = 0; i < draws.size(); ++i) {
      const size_t row = draws[i].row, number = rows_[row];
      const int64_t token = tokens[i];
      texts_[row].push_back(token);
      Continuation& text = done_[number];
      text.tokens.push_back(token);
      text.is_ended = std::ranges::find(options_.end_tokens, token) != options_.end_tokens.end() ||
                      (options_.is_complete && options_.is_complete(number, text.tokens));
      text.is_full = !options_.context.slides && std::ssize(texts_[row]) >= options_.context.length;
      if (watch) watch(number, token);
    }
  }

  /// Drops the texts that are complete if they are this share of all or more; returns the rows of the others.
  std::vector<int64_t> drop_complete(double least_share) {
    std::vector<int64_t> kept;
    for (size_t row = 0; row < rows_.size(); ++row)
      if (!is_complete(row)) kept.push_back(static_cast<int64_t>(row));
    const size_t complete = rows_.size() - kept.size();
    if (complete == 0 || static_cast<double>(complete) < least_share * static_cast<double>(rows_.size())) return {};
    size_t next = 0;
    for (const int64_t one : kept) {
      const auto row = static_cast<size_t>(one);
      if (next != row) texts_[next] = std::move(texts_[row]);
      rows_[next++] = rows_[row];
    }
    texts_.resize(next);
    rows_.resize(next);
    return kept;
  }

 private:
  bool is_complete(size_t row) const {
    const Continuation& text = done_[rows_[row]];
    return text.is_ended || text.is_full || std::ssize(text.tokens) >= options_.max_new_tokens;
  }

  const Options& options_;
  std::vector<std::vector<int64_t>> texts_;  // whole ones, of the rows
  std::vector<size_t> rows_;                 // number of the text in each row
  std::vector<RandomStream> numbers_;        // by text
  std::vector<Continuation> done_;           // by text
};

}  // namespace

void check_prompt(std::span<const int64_t> tokens, const ContextWindow& context, const std::string& place) {
  if (tokens.empty())
    throw Error(ExitCode::usage, {.what = "the prompt is empty", .where = place, .hint = "give it one token at least"});
  if (context.slides || std::ssize(tokens) < context.length) return;
  throw Error(ExitCode::usage,
              {.what = "the prompt has " + counted(std::ssize(tokens), "token") +
                       " and leaves no room for an answer: the model reads " + counted(context.length, "token"),
               .where = place,
               .hint = "a shorter prompt"});
}

std::vector<Continuation> generate(models::Model& model, const std::vector<std::vector<int64_t>>& texts,
                                   const Options& options, const Watch& watch) {
  for (const auto& text : texts) check_prompt(text, options.context);
  const at::NoGradGuard no_grad;
  model.train(false);
  Reader reader(model, options.context, options.make_graphs);
  Batch batch(texts, options);
  // If a change of the number of texts costs time, complete texts stay until half of them are complete.
  const double least_share = reader.has_fixed_sizes() ? 0.5 : 0;
  while (!batch.texts().empty()) {
    batch.add(reader.logits_after(batch.texts()), watch);
    if (const std::vector<int64_t> kept = batch.drop_complete(least_share); !kept.empty()) reader.keep(kept);
  }
  return batch.take();
}

}  // namespace gputrain::generation
