#include "gputrain/generation/generate.hpp"

#include <algorithm>
#include <array>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../src/models/texts/gpt.hpp"
#include "gputrain/core/error.hpp"
#include "support/tape.hpp"

namespace gputrain::generation {
namespace {

using models::Gpt;
using models::GptSpec;
using testing::ElementsAre;
using testing::SizeIs;
using testing_support::Tape;
using Texts = std::vector<std::vector<int64_t>>;

const nn::Context kDouble{.policy = ops::policy_of(ops::Precision::fp64)};
constexpr int64_t kLength = 90, kVocabulary = 31;

GptSpec small(bool is_llama) {
  GptSpec spec{.n_layer = 2, .n_head = 4, .n_kv_head = 2, .n_embd = 24, .pad_vocab_to = 64, .tie_embeddings = false};
  if (!is_llama) return spec;
  spec.position = "rotary";
  spec.norm = "rmsnorm";
  spec.activation = "swiglu";
  spec.qk_norm = true;
  return spec;
}

std::unique_ptr<Gpt> model_of(bool is_llama) {
  auto model = std::make_unique<Gpt>(small(is_llama), kDouble,
                                     models::DataFacts{.input_shape = {kLength}, .num_classes = kVocabulary});
  nn::initialize(*model, 3);
  model->each_parameter([](const std::string&, nn::Parameter& parameter) {
    if (parameter.value.dim() == 2) parameter.value.detach().mul_(12);  // texts that do not repeat one token
  });
  return model;
}

/// The same without a memory: it reads every text anew.
class Forgetful final : public models::Model {
 public:
  explicit Forgetful(Gpt& model) : Model(model.context()), model_(model) {}
  at::Tensor forward(const at::Tensor& inputs) override { return model_.forward(inputs); }
  std::vector<models::Unit> units() override { return model_.units(); }

 private:
  Gpt& model_;
};

Options options_of(double temperature, int64_t tokens = 50) {
  return {
      .sampling = {.temperature = temperature}, .seed = 5, .max_new_tokens = tokens, .context = {.length = kLength}};
}

Texts tokens_of(const std::vector<Continuation>& continued) {
  Texts tokens;
  for (const Continuation& each : continued) tokens.push_back(each.tokens);
  return tokens;
}

const Texts kPrompts{{3, 1, 4}, {1}, {5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9}, {2, 7}};

TEST(Generate, MatchesReadingTextsAnew) {
  for (const bool is_llama : {false, true}) {
    const auto model = model_of(is_llama);
    model->train(false);
    Forgetful forgetful(*model);
    for (const double temperature : {0.0, 1.0}) {
      const auto found = tokens_of(generate(*model, kPrompts, options_of(temperature)));
      EXPECT_EQ(found, tokens_of(generate(forgetful, kPrompts, options_of(temperature))));
      EXPECT_THAT(found, testing::Each(SizeIs(50)));
      EXPECT_GT(std::set(found[0].begin(), found[0].end()).size(), 5U);
    }
  }
}

TEST(Generate, MatchesSingleTextsInBatch) {
  for (const bool is_llama : {false, true}) {
    const auto model = model_of(is_llama);
    Options options = options_of(1);
    options.end_tokens = {8, 11};  // texts end at different times
    const auto together = generate(*model, kPrompts, options);
    for (size_t i = 0; i < kPrompts.size(); ++i) {
      const auto alone = generate(*model, {kPrompts[i]}, options)[0];
      EXPECT_EQ(together[i].tokens, alone.tokens);
      EXPECT_EQ(together[i].is_ended, alone.is_ended);
    }
    EXPECT_NE(together[0].tokens.size(), together[1].tokens.size());
  }
}

/// As on a GPU: the sizes stay the same from token to token, and a pass is recorded and replayed.
TEST(Generate, WritesTheSameByRecordedPasses) {
  for (const bool is_llama : {false, true}) {
    const auto model = model_of(is_llama);
    Options options = options_of(1);
    const auto expected = tokens_of(generate(*model, kPrompts, options));
    Tape::Counts counts;
    options.make_graphs = [&](at::Device) { return std::make_unique<Tape>(counts); };
    EXPECT_EQ(tokens_of(generate(*model, kPrompts, options)), expected);
    EXPECT_EQ(counts.graphs, 1U);
    EXPECT_EQ(counts.replays, 50 - 2);  // the first token comes with the prompts, the next one before the recording
  }
}

TEST(Generate, RecordsAgainWhereRoomGrowsOrHalfOfTheTextsEnd) {
  const models::DataFacts facts{.input_shape = {900}, .num_classes = kVocabulary};
  Gpt model(small(true), kDouble, facts);
  nn::initialize(model, 3);
  Options options = options_of(1, 600);
  options.context.length = 900;
  options.is_complete = [](size_t text, std::span<const int64_t> written) {
    return std::ssize(written) == std::array{300, 20, 600, 40}.at(text);  // the room grows at 256 - 16 and 512 - 16
  };
  const auto expected = tokens_of(generate(model, kPrompts, options));
  Tape::Counts counts;
  options.make_graphs = [&](at::Device) { return std::make_unique<Tape>(counts); };
  EXPECT_EQ(tokens_of(generate(model, kPrompts, options)), expected);
  EXPECT_EQ(counts.graphs, 1U + 1 + 1 + 1 + 1);  // four rows, two, more room, one row, more room
}

TEST(Generate, EndsAtEndTokensAndLimits) {
  const auto model = model_of(true);
  const auto whole = generate(*model, {{3}}, options_of(1))[0];
  EXPECT_FALSE(whole.is_ended || whole.is_full);
  Options options = options_of(1);
  options.end_tokens = {whole.tokens[4]};
  const auto ended = generate(*model, {{3}}, options)[0];
  const auto first = std::ranges::find(whole.tokens, whole.tokens[4]);
  EXPECT_EQ(ended.tokens, std::vector(whole.tokens.begin(), first + 1));
  EXPECT_TRUE(ended.is_ended);
  const auto full = generate(*model, {{3, 4}}, options_of(1, 1000))[0];
  EXPECT_THAT(full.tokens, SizeIs(kLength - 2));
  EXPECT_TRUE(full.is_full && !full.is_ended);
}

TEST(Generate, GoesOnBeyondContextThatSlides) {
  const auto model = model_of(true);
  model->train(false);
  Forgetful forgetful(*model);
  Options options = options_of(1, 30);
  options.context = {.length = 16, .slides = true};
  const Texts prompts{{3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5}, {2, 7}};
  const auto found = tokens_of(generate(*model, prompts, options));
  EXPECT_THAT(found, testing::Each(SizeIs(30)));
  EXPECT_EQ(found, tokens_of(generate(forgetful, prompts, options)));
  options.context.has_one_length = true;
  EXPECT_EQ(found, tokens_of(generate(forgetful, prompts, options)));
  options.end_tokens = {found[0][9]};  // the longer text ends when it does not fit, and the other one still does
  const auto ended = tokens_of(generate(*model, prompts, options));
  EXPECT_THAT(ended[0], SizeIs(10));
  EXPECT_GT(ended[1].size(), 10U);
  EXPECT_EQ(ended, tokens_of(generate(forgetful, prompts, options)));
}

TEST(Generate, TellsTokensAsTheyCome) {
  const auto model = model_of(false);
  Texts told(2);
  const auto found = generate(*model, {{3}, {4, 5}}, options_of(1, 6),
                              [&](size_t text, int64_t token) { told[text].push_back(token); });
  EXPECT_EQ(told, tokens_of(found));
}

TEST(Generate, DependsOnSeedAlone) {
  const auto model = model_of(false);
  Options options = options_of(1);
  const auto first = tokens_of(generate(*model, {{3}, {3}}, options));
  EXPECT_EQ(first[0], first[1]);
  options.seed = 6;
  EXPECT_NE(tokens_of(generate(*model, {{3}}, options))[0], first[0]);
}

TEST(Generate, RefusesTextsThatLeaveNoRoom) {
  const auto model = model_of(false);
  EXPECT_THROW(generate(*model, {{}}, options_of(0)), Error);
  EXPECT_THROW(generate(*model, {std::vector<int64_t>(kLength, 1)}, options_of(0)), Error);
  models::Model::Memory memory;
  Forgetful forgetful(*model);
  EXPECT_THROW(forgetful.next_logits({.tokens = at::full({1, 1}, 1), .positions = at::full({1, 1}, 0)}, memory), Error);
}

}  // namespace
}  // namespace gputrain::generation
