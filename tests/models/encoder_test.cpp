// Encoders read texts of any lengths: alone in a row, padded, or several in a row.
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../src/models/texts/encoder.hpp"
#include "gputrain/core/error.hpp"
#include "models/small_job.hpp"
#include "ops/compare.hpp"
#include "support/batches.hpp"

namespace gputrain::models {
namespace {

using testing::HasSubstr;
using testing_support::relative_error;

constexpr int64_t kWords = 11, kTags = 3, kLongest = 9;

EncoderSpec small_encoder(const std::string& variant, const std::string& head) {
  EncoderSpec spec{.variant = variant, .n_layer = 3, .n_head = 3, .n_embd = 18, .n_inner = 20, .dropout = 0};
  spec.block_size = kLongest;
  spec.head = head;
  if (variant == "modernbert") {
    spec.window = 3;
    spec.layer_types = {"full_attention", "sliding_attention"};
    spec.rope_theta = 500.0;
    spec.rope_local_theta = 20.0;
  }
  return spec;
}

const nn::Context kExact{.policy = ops::policy_of(ops::Precision::fp64)};

Encoder encoder_of(const EncoderSpec& spec, const nn::Context& context = kExact) {
  return Encoder(spec, context, {.input_shape = {kLongest}, .num_classes = kTags, .vocabulary = kWords});
}

/// Larger values than at the start, so that the parts of a text matter to each other.
void shake(Model& model) {
  nn::initialize(model, 3);
  const at::NoGradGuard no_grad;
  model.each_parameter([](const std::string&, nn::Parameter& p) { p.value.mul_(p.value.dim() == 2 ? 12 : 1); });
}

struct Text {
  std::vector<int64_t> tokens, types;
};
const std::vector<Text> kTexts{
    {{5, 2, 7, 1, 9, 3, 4}, {0, 0, 0, 1, 1, 1, 1}}, {{8}, {1}}, {{6, 10, 2, 2}, {0, 1, 1, 0}}};

Batch batch_of_one(const Text& text, bool has_types) {
  Batch batch{.fields = {{kTokens, at::tensor(text.tokens).unsqueeze(0)}}, .samples = 1};
  if (has_types) batch.fields.push_back({kTokenTypes, at::tensor(text.types).unsqueeze(0)});
  return batch;
}

/// The texts in rows of their own, and a last row without a token.
Batch padded_texts(bool has_types, int64_t padding) {
  std::vector<at::Tensor> tokens, types;
  std::vector<int64_t> counts;
  const auto filled = [&](const std::vector<int64_t>& values, int64_t fill) {
    const at::Tensor row = at::full({kLongest - 1}, fill, at::kLong);
    row.narrow(0, 0, std::ssize(values)).copy_(at::tensor(values, at::kLong));
    return row;
  };
  for (const Text& text : kTexts) {
    tokens.push_back(filled(text.tokens, padding));
    types.push_back(filled(text.types, padding % 2));
    counts.push_back(std::ssize(text.tokens));
  }
  tokens.push_back(at::full({kLongest - 1}, padding, at::kLong));
  types.push_back(at::zeros({kLongest - 1}, at::kLong));
  counts.push_back(0);
  Batch batch{.fields = {{kTokens, at::stack(tokens), at::tensor(counts)}}, .samples = std::ssize(kTexts)};
  if (has_types) batch.fields.push_back({kTokenTypes, at::stack(types)});
  return batch;
}

/// All in one row, with padding behind them.
Batch packed_texts(bool has_types) {
  std::vector<int64_t> tokens, types, positions;
  for (const Text& text : kTexts) {
    for (size_t i = 0; i < text.tokens.size(); ++i) positions.push_back(static_cast<int64_t>(i));
    tokens.insert(tokens.end(), text.tokens.begin(), text.tokens.end());
    types.insert(types.end(), text.types.begin(), text.types.end());
  }
  const int64_t count = std::ssize(tokens);
  for (auto* list : {&tokens, &types, &positions}) list->resize(static_cast<size_t>(count) + 2, 0);
  const auto row = [](const std::vector<int64_t>& values) { return at::tensor(values).unsqueeze(0); };
  Batch batch{.fields = {{kTokens, row(tokens), at::tensor({count})}, {kPositions, row(positions)}}, .samples = 1};
  if (has_types) batch.fields.push_back({kTokenTypes, row(types)});
  return batch;
}

/// Logits, or of an embedder the vectors.
at::Tensor results_of(Encoder& model, const Batch& batch) {
  const auto last = model.last_layer(batch);
  return last.head.logits ? last.head.logits(last.features) : last.features;
}

using EncoderCase = std::pair<std::string, std::string>;  // variant and head
class EveryEncoder : public testing::TestWithParam<EncoderCase> {
 protected:
  bool has_types() const { return GetParam().first == "bert"; }
  bool has_token_results() const { return GetParam().second == "mlm" || GetParam().second == "tagger"; }
};
std::vector<EncoderCase> every_encoder_case() {
  std::vector<EncoderCase> cases;
  for (const char* variant : {"bert", "roberta", "distilbert", "modernbert"})
    for (const char* head : {"mlm", "classifier", "tagger", "embedder"}) cases.emplace_back(variant, head);
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Encoders, EveryEncoder, testing::ValuesIn(every_encoder_case()),
                         [](const auto& entry) { return entry.param.first + "_" + entry.param.second; });

TEST_P(EveryEncoder, GivesATextTheSameAloneAndBesideOthers) {
  Encoder model = encoder_of(small_encoder(GetParam().first, GetParam().second));
  shake(model);
  const at::NoGradGuard no_grad;
  const at::Tensor rows = results_of(model, padded_texts(has_types(), 0));
  const at::Tensor row = has_token_results() ? results_of(model, packed_texts(has_types())) : at::Tensor();
  int64_t begin = 0;
  for (size_t i = 0; i < kTexts.size(); ++i) {
    const at::Tensor alone = results_of(model, batch_of_one(kTexts[i], has_types()))[0];
    const int64_t count = std::ssize(kTexts[i].tokens);
    const at::Tensor beside = rows[static_cast<int64_t>(i)];
    EXPECT_LT(relative_error(has_token_results() ? beside.narrow(0, 0, count) : beside, alone), 1e-9) << i;
    if (row.defined()) {
      EXPECT_LT(relative_error(row[0].narrow(0, begin, count), alone), 1e-9) << i;
    }
    begin += count;
  }
}

TEST_P(EveryEncoder, IgnoresWhatPaddingHolds) {
  Encoder model = encoder_of(small_encoder(GetParam().first, GetParam().second));
  shake(model);
  const auto loss_with = [&](int64_t padding) {
    Batch batch = padded_texts(has_types(), padding);
    const at::Tensor lengths = batch.find(kTokens)->counts;
    at::Tensor targets = at::arange(4, at::kLong) % kTags;
    if (has_token_results()) {
      const at::Tensor present = at::arange(kLongest - 1).lt(lengths.unsqueeze(1));
      targets = at::arange(4 * (kLongest - 1), at::kLong).view({4, -1}).remainder(kTags);
      targets = targets.masked_fill(present.logical_not(), kIgnoreIndex);
    } else {
      targets[3] = kIgnoreIndex;
    }
    batch.fields.push_back({kTarget, targets});
    const at::Tensor loss = testing_support::loss_of(model, batch).weighted;
    loss.backward();
    at::Tensor sum = at::zeros({}, at::kDouble);
    model.each_parameter([&](const std::string& name, nn::Parameter& p) {
      EXPECT_TRUE(p.value.grad().isfinite().all().item<bool>()) << name;
      sum += p.value.grad().abs().sum();
      p.value.mutable_grad() = at::Tensor();
    });
    return at::stack({loss.detach(), sum});
  };
  EXPECT_LT(relative_error(loss_with(7), loss_with(0)), 1e-12);
}

TEST_P(EveryEncoder, ComputesIn16BitsCloseToFp32) {
  const EncoderSpec spec = small_encoder(GetParam().first, GetParam().second);
  Encoder exact = encoder_of(spec), half = encoder_of(spec, {.policy = ops::policy_of(ops::Precision::bf16)});
  for (Encoder* model : {&exact, &half}) nn::initialize(*model, 3);
  const at::NoGradGuard no_grad;
  const at::Tensor expected = results_of(exact, padded_texts(has_types(), 0)),
                   found = results_of(half, padded_texts(has_types(), 0));
  EXPECT_EQ(found.scalar_type(), at::kBFloat16);
  const auto of_texts = [&](const at::Tensor& x) { return x.narrow(0, 0, 3).select(1, 0); };
  EXPECT_LT(relative_error(of_texts(found), of_texts(expected)), 0.03);
}

TEST(Encoder, NeedsNoLengthsWhereAllRowsAreFull) {
  Encoder model = encoder_of(small_encoder("bert", "mlm"));
  shake(model);
  const at::NoGradGuard no_grad;
  Batch batch = batch_of_one(kTexts[0], true);
  const at::Tensor expected = results_of(model, batch);
  batch.fields[0].counts = at::tensor({int64_t{7}});
  EXPECT_TRUE(results_of(model, batch).equal(expected));
}

TEST(Encoder, RefusesSeveralTextsInARowWhereARowIsOneText) {
  Encoder model = encoder_of(small_encoder("bert", "classifier"));
  nn::initialize(model, 3);
  try {
    model.last_layer(packed_texts(false));
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("several texts share a row"));
  }
}

TEST(Encoder, RefusesTextsLongerThanItsPositions) {
  Encoder model = encoder_of(small_encoder("roberta", "mlm"));
  nn::initialize(model, 3);
  EXPECT_NO_THROW(model.forward(at::zeros({1, kLongest}, at::kLong)));
  EXPECT_THROW(model.forward(at::zeros({1, kLongest + 1}, at::kLong)), Error);
}

TEST(Encoder, PoolsTokensOfEachText) {
  const at::Tensor hidden = at::arange(2 * 4 * 3, at::kDouble).view({2, 4, 3}),
                   lengths = at::tensor({int64_t{4}, int64_t{2}});
  EXPECT_TRUE(pooled(hidden, lengths, Pooling::first).equal(hidden.select(1, 0)));
  EXPECT_TRUE(pooled(hidden, lengths, Pooling::last).equal(at::stack({hidden[0][3], hidden[1][1]})));
  EXPECT_TRUE(
      pooled(hidden, lengths, Pooling::mean).equal(at::stack({hidden[0].mean(0), hidden[1].narrow(0, 0, 2).mean(0)})));
  EXPECT_TRUE(pooled(hidden, {}, Pooling::mean).equal(hidden.mean(1)));
  EXPECT_TRUE(pooled(hidden, {}, Pooling::last).equal(hidden.select(1, 3)));
}

using Probability = std::optional<double> EncoderSpec::*;

// Weights of attention, what blocks and embeddings add, and the head each have a dropout of their own.
TEST(Encoder, DropsWhereItIsTold) {
  for (const char* variant : {"bert", "roberta", "distilbert", "modernbert"}) {
    for (const auto kind : {&EncoderSpec::attention_dropout, &EncoderSpec::head_dropout, Probability(nullptr)}) {
      EncoderSpec spec = small_encoder(variant, "classifier");
      spec.attention_dropout = spec.head_dropout = 0;
      if (kind != nullptr) {
        spec.*kind = 0.3;
      } else {
        spec.dropout = 0.3;
      }
      Encoder model = encoder_of(spec);
      shake(model);
      const at::NoGradGuard no_grad;
      const auto differ = [&] {
        return !results_of(model, padded_texts(false, 0)).equal(results_of(model, padded_texts(false, 0)));
      };
      EXPECT_TRUE(differ()) << variant;
      model.train(false);
      EXPECT_FALSE(differ()) << variant;
    }
  }
}

std::string complaint(const std::string& options) {
  try {
    load_job("model: {type: bert, config: {" + options + "}}");
  } catch (const std::exception& error) {
    return error.what();
  }
  return "accepted";
}

TEST(EncoderSpec, RefusesOptionsThatWouldNotCount) {
  EXPECT_EQ(complaint("variant: modernbert, window: 5, rope_local_theta: 100"), "accepted");
  EXPECT_THAT(complaint("n_embd: 100"), HasSubstr("n_embd (100) must be a multiple of n_head (12)"));
  EXPECT_THAT(complaint("window: 5"), HasSubstr("is of ModernBERT's layers"));
  EXPECT_THAT(complaint("rope_theta: 100"), HasSubstr("is of ModernBERT's rotary positions"));
  EXPECT_THAT(complaint("variant: modernbert, rope_local_theta: 5"), HasSubstr("is of layers with a window"));
  EXPECT_THAT(complaint("variant: modernbert, n_embd: 36"), HasSubstr("3 per head is odd"));
  EXPECT_THAT(complaint("variant: modernbert, position_offset: 2"), HasSubstr("is of learned positions"));
  EXPECT_THAT(complaint("variant: distilbert, type_vocab_size: 2"), HasSubstr("does not tell types of tokens apart"));
  EXPECT_THAT(complaint("pooling: mean, head: classifier"), HasSubstr("other than first is of head: embedder"));
  EXPECT_THAT(complaint("num_classes: 3"), HasSubstr("is of a classifier or a tagger, but head is mlm"));
  EXPECT_THAT(complaint("variant: modernbert, layer_types: [sliding_attention]"), HasSubstr("needs a window"));
}

TEST(EncoderFlops, CountWeightsAndAttention) {
  const EncoderSpec spec = small_encoder("modernbert", "classifier");
  const double tokens = kLongest, channels = 18, block = 4 * channels * channels + 3 * channels * 20;
  const double head = channels * channels + channels * kTags;  // once for each text
  const double keys = tokens + 5 + tokens;                     // the second layer's window reaches 2 to each side
  EXPECT_DOUBLE_EQ(encoder_of(spec).flops_per_sample(),
                   6 * (tokens * 3 * block + head) + 12 * channels * tokens * keys);
}

}  // namespace
}  // namespace gputrain::models
