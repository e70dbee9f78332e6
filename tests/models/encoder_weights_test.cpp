// Encoders take weights that were trained with another head, and names that older files have.
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../../src/models/texts/encoder.hpp"
#include "../../src/models/weight_matching.hpp"
#include "gputrain/config/problem.hpp"
#include "gputrain/core/error.hpp"
#include "models/weights.hpp"

namespace gputrain::models {
namespace {

using nlohmann::json;
using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Key;
using testing::Not;
using testing::Pair;

struct TinyEncoder {
  explicit TinyEncoder(const std::string& variant, const std::string& head, int64_t classes = 3)
      : model({.variant = variant, .n_layer = 1, .n_head = 2, .n_embd = 8, .block_size = 4, .head = head}, {},
              {.input_shape = {4}, .num_classes = classes, .vocabulary = 11}) {
    nn::initialize(model, 1);
  }
  /// A value for each tensor, under its name in files.
  std::map<std::string, at::Tensor> file(double value = 0.25) {
    std::map<std::string, at::Tensor> tensors;
    const auto family = family_of(model);
    model.each_parameter([&](const std::string& name, nn::Parameter& p) {
      tensors[family->file_name_of(model, name)] = at::full(p.value.sizes(), value);
    });
    return tensors;
  }
  /// Names of parameters that do not hold this value everywhere.
  std::vector<std::string> not_holding(double value) {
    std::vector<std::string> names;
    model.each_parameter([&](const std::string& name, nn::Parameter& p) {
      if (!(p.value == value).all().item<bool>()) names.push_back(name);
    });
    return names;
  }
  Encoder model;
};

std::string misfit(TinyEncoder& tiny, const std::map<std::string, at::Tensor>& file, OtherClasses other) {
  try {
    load_weights(tiny.model, source_of(file), other);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return error.what();
  }
  return "accepted";
}

TEST(EncoderWeights, OfAnotherHeadLeaveANewOne) {
  for (const auto& [variant, pooled, classes] : {std::tuple("bert", "bert.pooler.dense", "classifier"),
                                                 std::tuple("roberta", "classifier.dense", "classifier.out_proj"),
                                                 std::tuple("distilbert", "pre_classifier", "classifier")}) {
    const auto file = TinyEncoder(variant, "mlm").file();
    TinyEncoder tiny(variant, "classifier");
    const MatchedWeights found = match_weights(tiny.model, source_of(file), OtherClasses::left_out);
    EXPECT_THAT(found.not_loaded.missing_parts, testing::UnorderedElementsAre(pooled, classes));
    load_weights(tiny.model, source_of(file), OtherClasses::left_out);
    EXPECT_EQ(tiny.not_holding(0.25).size(), 4) << variant;
    EXPECT_THAT(misfit(tiny, file, OtherClasses::refused), HasSubstr("4 missing in the file"));
  }
}

TEST(EncoderWeights, KeepWhatTwoHeadsShare) {
  const auto file = TinyEncoder("modernbert", "mlm").file();
  TinyEncoder tiny("modernbert", "classifier");
  load_weights(tiny.model, source_of(file), OtherClasses::left_out);
  EXPECT_THAT(tiny.not_holding(0.25), ElementsAre("classifier.weight", "classifier.bias"));
}

TEST(EncoderWeights, OfABareEncoderHaveAPooler) {
  auto file = TinyEncoder("bert", "embedder").file();
  EXPECT_TRUE(file.contains("encoder.layer.0.output.dense.weight"));
  file["pooler.dense.weight"] = at::full({8, 8}, 0.25);
  file["pooler.dense.bias"] = at::full({8}, 0.25);
  TinyEncoder classifier("bert", "classifier"), embedder("bert", "embedder"), tagger("bert", "tagger");
  load_weights(classifier.model, source_of(file), OtherClasses::left_out);
  EXPECT_THAT(classifier.not_holding(0.25), ElementsAre("classifier.weight", "classifier.bias"));
  load_weights(embedder.model, source_of(file));
  EXPECT_THAT(embedder.not_holding(0.25), IsEmpty());
  load_weights(tagger.model, source_of(file), OtherClasses::left_out);
  EXPECT_THAT(tagger.not_holding(0.25), ElementsAre("classifier.weight", "classifier.bias"));
}

TEST(EncoderWeights, LackNoPartOfALayer) {
  auto file = TinyEncoder("bert", "classifier").file();
  file.erase("classifier.bias");
  TinyEncoder tiny("bert", "classifier");
  EXPECT_THAT(misfit(tiny, file, OtherClasses::left_out), HasSubstr("1 missing in the file: classifier.bias"));
  file = TinyEncoder("bert", "mlm").file();
  file.erase("bert.embeddings.LayerNorm.bias");
  EXPECT_THAT(misfit(tiny, file, OtherClasses::left_out),
              HasSubstr("1 missing in the file: bert.embeddings.LayerNorm.bias"));
}

TEST(EncoderWeights, OfOtherClassesLeaveTheLastLayerOut) {
  const auto file = TinyEncoder("roberta", "classifier", 5).file();
  TinyEncoder tiny("roberta", "classifier");
  EXPECT_EQ(load_weights(tiny.model, source_of(file), OtherClasses::left_out).classes_left_out, 5);
  EXPECT_THAT(tiny.not_holding(0.25), ElementsAre("classifier.out_proj.weight", "classifier.out_proj.bias"));
}

// As of bert-base-uncased.
TEST(EncoderWeights, HaveOtherNamesInOldFiles) {
  std::map<std::string, at::Tensor> old;
  for (const auto& [name, tensor] : TinyEncoder("bert", "mlm").file()) {
    std::string renamed = name;
    for (const auto& [now, before] :
         {std::pair("LayerNorm.weight", "LayerNorm.gamma"), {"LayerNorm.bias", "LayerNorm.beta"}}) {
      if (const size_t at = renamed.find(now); at != std::string::npos) renamed.replace(at, std::string::npos, before);
    }
    old[renamed] = tensor;
  }
  EXPECT_TRUE(old.contains("cls.predictions.transform.LayerNorm.gamma"));
  old["bert.embeddings.position_ids"] = at::arange(4, at::kLong).unsqueeze(0);
  old["cls.predictions.decoder.weight"] = at::full({11, 8}, 0.25);
  old["cls.predictions.decoder.bias"] = at::full({11}, 0.25);
  old["cls.seq_relationship.weight"] = at::ones({2, 8});
  old["cls.seq_relationship.bias"] = at::ones({2});
  old["bert.pooler.dense.weight"] = at::full({8, 8}, 0.25);
  old["bert.pooler.dense.bias"] = at::full({8}, 0.25);
  TinyEncoder tiny("bert", "mlm");
  load_weights(tiny.model, source_of(old));
  EXPECT_THAT(tiny.not_holding(0.25), IsEmpty());
  old["bert.encoder.layer.1.output.dense.bias"] = at::ones({8});
  EXPECT_THAT(misfit(tiny, old, OtherClasses::left_out),
              HasSubstr("1 unknown to the model: bert.encoder.layer.1.output.dense.bias"));
  old.erase("bert.encoder.layer.1.output.dense.bias");
  old["cls.predictions.decoder.weight"] += 1;
  EXPECT_THAT(misfit(tiny, old, OtherClasses::left_out), HasSubstr("1 tied in the model but different here"));
}

const json kBert{{"model_type", "bert"},       {"architectures", {"BertForSequenceClassification"}},
                 {"vocab_size", 11},           {"hidden_size", 8},
                 {"num_hidden_layers", 1},     {"num_attention_heads", 2},
                 {"intermediate_size", 16},    {"max_position_embeddings", 4},
                 {"hidden_dropout_prob", 0.2}, {"id2label", {{"0", "no"}, {"1", "yes: or \"so\""}, {"2", "- maybe"}}}};

/// The model that a job builds for a config.json.
std::unique_ptr<Model> encoder_from(const json& config, const std::string& job, int64_t classes = 3,
                                    std::vector<std::string> class_names = {}) {
  const auto settings = settings_of(published_model(config, "w/config.json"), load_job(job), "model");
  return build(load_job(job, settings),
               {.input_shape = {4}, .num_classes = classes, .vocabulary = 11, .class_names = std::move(class_names)});
}

TEST(EncoderConfig, GivesWhatAJobMaySetOtherwise) {
  const auto published = published_model(kBert, "");
  EXPECT_THAT(published.options, AllOf(Contains(Pair("n_embd", "8")), Not(Contains(Key("head")))));
  EXPECT_THAT(published.defaults, AllOf(Contains(Pair("head", "classifier")), Contains(Pair("dropout", "0.2"))));
  const auto as_is = encoder_from(kBert, "model: {type: bert}");
  const auto& sizes = dynamic_cast<const Encoder&>(*as_is).sizes();
  EXPECT_EQ(sizes.head, HeadKind::classifier);
  EXPECT_EQ(sizes.dropout, 0.2);
  const auto other = encoder_from(kBert, "model: {type: bert, config: {head: mlm, dropout: 0}}");
  EXPECT_EQ(dynamic_cast<const Encoder&>(*other).sizes().head, HeadKind::mlm);
  EXPECT_EQ(dynamic_cast<const Encoder&>(*other).sizes().dropout, 0);
  EXPECT_THROW(encoder_from(kBert, "model: {type: bert, config: {n_embd: 16}}"), config::SpecError);
}

TEST(EncoderConfig, KeepsNamesOfClasses) {
  const auto kept = published_config(*encoder_from(kBert, "model: {type: bert}"));
  EXPECT_EQ(kept["id2label"], kBert["id2label"]);
  EXPECT_EQ(kept["label2id"], (json{{"no", 0}, {"yes: or \"so\"", 1}, {"- maybe", 2}}));
  EXPECT_EQ(kept["architectures"], json{"BertForSequenceClassification"});
  const auto of_data = published_config(*encoder_from(kBert, "model: {type: bert}", 3, {"a", "b", "c"}));
  EXPECT_EQ(of_data["id2label"], (json{{"0", "a"}, {"1", "b"}, {"2", "c"}}));
  const auto others = published_config(*encoder_from(kBert, "model: {type: bert}", 2));
  EXPECT_EQ(others["id2label"], (json{{"0", "LABEL_0"}, {"1", "LABEL_1"}}));
}

TEST(EncoderConfig, IsReadAgain) {
  const std::vector<std::string> variants{
      "variant: bert",       "variant: roberta",    "variant: xlm_roberta",           "variant: camembert",
      "variant: distilbert", "variant: modernbert", "variant: modernbert, window: 1", "variant: modernbert, window: 3"};
  for (const std::string& variant : variants) {
    for (const char* head : {"mlm", "classifier", "tagger", "embedder"}) {
      const std::string job =
          "model: {type: bert, config: {n_layer: 2, n_head: 2, n_embd: 16, " + variant + ", head: " + head + "}}\n";
      const auto model = build(load_job(job), {.input_shape = {8}, .num_classes = 3, .vocabulary = 11});
      const json config = published_config(*model);
      ASSERT_FALSE(config.is_null()) << job;
      const auto again =
          build(load_job("model: {type: bert}\n",
                         settings_of(published_model(config, ""), load_job("model: {type: bert}\n"), "model")),
                {.input_shape = {8}, .num_classes = 3, .vocabulary = 11});
      EXPECT_EQ(published_config(*again), config) << job;
    }
  }
}

std::string objection(const json& changes) {
  json config = kBert;
  config.update(changes);
  try {
    published_model(config, "w/config.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    return error.what();
  }
  return "accepted";
}

TEST(EncoderConfig, RefusesWhatIsNotComputed) {
  EXPECT_EQ(objection(json::object()), "accepted");
  EXPECT_THAT(objection({{"is_decoder", true}}), HasSubstr("'is_decoder: true' is not supported"));
  EXPECT_THAT(objection({{"tie_word_embeddings", false}}), HasSubstr("'tie_word_embeddings: false'"));
  EXPECT_THAT(objection({{"position_embedding_type", "relative_key"}}), HasSubstr("'position_embedding_type'"));
  EXPECT_THAT(objection({{"hidden_act", "mish"}}), HasSubstr("hidden_act 'mish'"));
  const json modern{{"model_type", "modernbert"}};
  const auto refuse_modern = [&](json changes) {
    changes.update(modern);
    return objection(changes);
  };
  EXPECT_EQ(refuse_modern({{"local_attention", 8}}), "accepted");
  EXPECT_THAT(refuse_modern({{"attention_bias", true}}), HasSubstr("'attention_bias: true'"));
  EXPECT_THAT(refuse_modern({{"mlp_dropout", 0.1}}), HasSubstr("'embedding_dropout' and 'mlp_dropout' differ"));
  EXPECT_THAT(refuse_modern({{"rope_parameters", {{"full_attention", {{"rope_type", "yarn"}}}}}}),
              HasSubstr("'rope_type' other than default"));
}

// As transformers 4 writes it.
TEST(EncoderConfig, ReadsModernBertsOlderKeys) {
  json config = kBert;
  config.update(json{{"model_type", "modernbert"},
                     {"num_hidden_layers", 5},
                     {"global_attn_every_n_layers", 2},
                     {"local_attention", 128},
                     {"global_rope_theta", 160000.0},
                     {"local_rope_theta", 10000.0}});
  EXPECT_THAT(
      published_model(config, "").options,
      AllOf(Contains(Pair("window", "65")), Contains(Pair("layer_types", "[full_attention, sliding_attention]")),
            Contains(Pair("rope_theta", "160000.0")), Contains(Pair("rope_local_theta", "10000.0"))));
}

TEST(EncoderConfig, IsThereOnlyForWhatTransformersComputes) {
  const auto config_of = [](const std::string& options) {
    return published_config(
        *build(load_job("model: {type: bert, config: {n_layer: 1, n_head: 2, n_embd: 8, " + options + "}}"),
               {.input_shape = {4}, .num_classes = 3, .vocabulary = 11}));
  };
  EXPECT_EQ(config_of("variant: bert")["max_position_embeddings"], 4);
  EXPECT_TRUE(config_of("variant: bert, position_offset: 1").is_null());
  EXPECT_TRUE(config_of("variant: bert, type_vocab_size: 0").is_null());
  EXPECT_EQ(config_of("variant: roberta")["pad_token_id"], 1);
  EXPECT_EQ(config_of("variant: roberta")["max_position_embeddings"], 6);
  EXPECT_TRUE(config_of("variant: roberta, activation: relu").is_null()) << "its head has gelu";
  EXPECT_TRUE(config_of("variant: distilbert, norm_eps: 1e-6").is_null());
  EXPECT_EQ(config_of("variant: camembert")["model_type"], "camembert");
}

}  // namespace
}  // namespace gputrain::models
