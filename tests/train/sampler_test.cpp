#include <set>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../src/models/texts/gpt.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/train/sampler.hpp"

namespace gputrain::train {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kLength = 6;

/// Records the lengths of its input texts.
class Watched final : public models::Model {
 public:
  Watched() : Model(nn::Context{.policy = ops::policy_of(ops::Precision::fp64)}) { nn::initialize(model_, 1); }
  at::Tensor forward(const at::Tensor& inputs) override {
    lengths.insert(inputs.size(1));
    return model_.forward(inputs);
  }
  std::vector<models::Unit> units() override { return model_.units(); }
  std::set<int64_t> lengths;

 private:
  models::Gpt model_{
      {.n_layer = 2, .n_head = 2, .n_embd = 16}, context(), {.input_shape = {kLength}, .num_classes = 11}};
};

/// A digit is a token, and E the end.
class Digits final : public tokenizers::Tokenizer {
 public:
  int64_t vocabulary_size() const override { return 11; }
  bool is_special(int64_t token) const override { return token == 10; }
  std::string decode(std::span<const int64_t> tokens) const override {
    std::string text;
    for (const int64_t token : tokens) text += "0123456789E"[token];
    return text;
  }

 private:
  void tokenize(std::string_view text, const std::string&, const Take& take,
                std::vector<tokenizers::ByteRange>*) const override {
    std::vector<int64_t> tokens;
    for (const char c : text) tokens.push_back(c == 'E' ? 10 : c - '0');
    take(tokens);
  }
};

class SamplerTest : public ::testing::Test {
 protected:
  std::vector<std::string> texts_of(models::Model& model, const SampleOptions& options) const {
    std::vector<std::string> texts;
    for (const auto& one : write_samples(model, digits_, prompts_of(options.spec, digits_, {}), options))
      texts.push_back(one.text);
    return texts;
  }

  Digits digits_;
  SampleOptions options_{.spec = {.prompt = {{"31"}}, .max_new_tokens = 9, .temperature = 1.5},
                         .end_tokens = {},
                         .text_length = kLength,
                         .seed = 7};
};

TEST_F(SamplerTest, WritesSameTextHoweverContextIsRead) {
  Watched model;
  const auto texts = texts_of(model, options_);
  EXPECT_THAT(model.lengths, ElementsAre(2, 3, 4, 5, 6));
  models::Gpt remembers({.n_layer = 2, .n_head = 2, .n_embd = 16}, model.context(),
                        {.input_shape = {kLength}, .num_classes = 11});
  nn::initialize(remembers, 1);
  EXPECT_EQ(texts_of(remembers, options_), texts);
}

TEST_F(SamplerTest, WritesEachTextAsIfAlone) {
  Watched model;
  const std::string first = texts_of(model, options_)[0];
  options_.spec.prompt = {{"5", "31", "4444"}};
  const auto prompts = prompts_of(options_.spec, digits_, {});
  EXPECT_EQ(prompts[0].begun.name, "sample");
  EXPECT_EQ(prompts[2].begun.name, "sample/3");
  const auto texts = write_samples(model, digits_, prompts, options_);
  EXPECT_EQ(texts[1].text, first);
  EXPECT_EQ(texts[1].whole(), "31" + first);
}

TEST_F(SamplerTest, LeavesOutTheEnd) {
  Watched model;
  const std::string whole = texts_of(model, options_)[0];
  options_.end_tokens = {whole[2] - '0'};
  EXPECT_EQ(texts_of(model, options_)[0], whole.substr(0, whole.find(whole[2])));
}

TEST_F(SamplerTest, RefusesPromptsThatTheModelCannotRead) {
  models::Gpt model({.n_layer = 1, .n_head = 2, .n_embd = 16},
                    nn::Context{.policy = ops::policy_of(ops::Precision::fp64)},
                    {.input_shape = {kLength}, .num_classes = 9});
  const auto refused = [&](SamplePrompt prompt) {
    try {
      check_prompts({prompt}, model, options_);
      return std::string("accepted");
    } catch (const Error& refusal) {
      return std::string(refusal.what());
    }
  };
  EXPECT_EQ(refused({.place = "here", .begun = {}, .tokens = {1, 2, 3, 4, 5, 6, 7}}), "accepted");
  EXPECT_THAT(refused({.place = "here", .begun = {.is_answer = true}, .tokens = {1, 2, 3, 4, 5, 6}}),
              HasSubstr("leaves no room for an answer"));
  EXPECT_THAT(refused({.place = "here", .begun = {}, .tokens = {1, 9}}),
              HasSubstr("has token 9, but the model knows 9"));
}

}  // namespace
}  // namespace gputrain::train
