// Adapters in PEFT's files: names, what is read back, and settings that are not computed.
#include "gputrain/models/adapter.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "../../src/models/texts/encoder.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/device/runtime.hpp"
#include "models/adapted.hpp"
#include "models/weights.hpp"

namespace gputrain::models::adapter_files_testing {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(LoraFiles, NameTensorsAsPeftDoes) {
  const auto llama = gpt(small_llama_spec()), gpt2 = gpt(small_gpt2_spec());
  lora("target_modules: [q_proj], modules_to_save: [lm_head]")->adapt(*llama);
  lora("target_modules: [c_fc], rank: 4")->adapt(*gpt2);
  const auto of_llama = copies(*llama), of_gpt2 = copies(*gpt2);
  EXPECT_TRUE(of_llama.contains("base_model.model.lm_head.weight"));
  EXPECT_TRUE(of_llama.contains("base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"));
  const std::string c_fc = "base_model.model.transformer.h.0.mlp.c_fc.";
  EXPECT_THAT(of_gpt2.at(c_fc + "lora_A.weight").sizes(), ElementsAre(4, 16));
  EXPECT_THAT(of_gpt2.at(c_fc + "lora_B.weight").sizes(), ElementsAre(64, 4));
}

TEST(LoraFiles, AreReadBack) {
  const auto from = adapted(small_llama_spec(), "rank: 2"), to = gpt(small_llama_spec(), kFp64Context);
  lora("rank: 2")->adapt(*to);
  nn::initialize(*to, 5);
  load_adapter(*to, source_of(copies(*from)));
  EXPECT_TRUE(to->forward(tokens(1)).equal(from->forward(tokens(1))));
}

TEST(LoraFiles, MayHoldTheWeightOfAnAdaptedHead) {
  const auto model = adapted(small_llama_spec(), "rank: 2, target_modules: [lm_head]");
  auto tensors = copies(*model);
  at::Tensor& head = tensors["base_model.model.lm_head.base_layer.weight"];
  model->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (name == "lm_head.weight") head = parameter.value.detach().clone();
  });
  EXPECT_NO_THROW(load_adapter(*model, source_of(tensors)));
  head.add_(1);
  EXPECT_THROW(load_adapter(*model, source_of(tensors)), Error);
}

// The weights have another order of classes: for a last layer that is trained whole, and for one that is adapted.
TEST(LoraFiles, HaveTheRowsOfTheLastLayerByTheOrderOfClasses) {
  for (const char* options :
       {"target_modules: [q_proj], modules_to_save: [lm_head]", "rank: 2, target_modules: [lm_head]"}) {
    const auto from = adapted(small_llama_spec(), options), to = adapted(small_llama_spec(), options);
    auto tensors = copies(*from);
    const std::string base = "base_model.model.lm_head.base_layer.weight";
    to->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
      if (name == "lm_head.weight" && !parameter.trainable) tensors[base] = parameter.value.detach().flip({0});
    });
    TensorSource source = source_of(tensors);
    for (int64_t row = 0; row < 11; ++row) source.class_rows.push_back(10 - row);
    load_adapter(*to, source);
    for (const auto& [name, tensor] : copies(*to)) {
      const bool is_of_classes = name.find("lm_head") != std::string::npos && !name.ends_with("lora_A.weight");
      EXPECT_TRUE(tensor.equal(is_of_classes ? tensors[name].flip({0}) : tensors[name])) << name;
    }
  }
}

TEST(LoraFiles, MayHoldEmbeddingAndHeadOfTheBase) {
  for (const bool tied : {false, true}) {
    const auto model = adapted(small_llama_spec(tied), "rank: 2");
    auto tensors = copies(*model);
    const std::string names[] = {"model.embed_tokens.weight", "lm_head.weight"};
    model->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
      for (const std::string& other : names)
        if (name == other || (tied && name == names[0]))
          tensors["base_model.model." + other] = parameter.value.detach().clone();
    });
    ASSERT_TRUE(tensors.contains("base_model.model.lm_head.weight"));
    EXPECT_NO_THROW(load_adapter(*model, source_of(tensors)));
    const auto message = [&](const std::string& name, const at::Tensor& values) {
      auto changed = tensors;
      changed["base_model.model." + name] = values;
      try {
        load_adapter(*model, source_of(changed));
      } catch (const Error& error) {
        return std::string(error.what());
      }
      return std::string("none");
    };
    for (const std::string& name : names) {
      const at::Tensor values = tensors.at("base_model.model." + name);
      EXPECT_THAT(message(name, values + 1), AllOf(HasSubstr(name), HasSubstr("is not the model's")));
      EXPECT_THAT(message(name, at::cat({values, values.narrow(0, 0, 2)})),
                  AllOf(HasSubstr(name), HasSubstr("resized"), HasSubstr("merge_and_unload")));
    }
  }
}

TEST(LoraFiles, OfOtherAdaptersAreRefused) {
  const auto model = adapted(small_llama_spec(), "rank: 2");
  auto tensors = copies(*model);
  const std::string layer = "base_model.model.model.layers.0.self_attn.q_proj.";
  tensors[layer + "lora_magnitude_vector"] = tensors[layer + "lora_A.weight"];
  tensors.erase(layer + "lora_A.weight");
  try {
    load_adapter(*model, source_of(tensors));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::data);
    EXPECT_THAT(error.what(), AllOf(HasSubstr("lora_magnitude_vector"), HasSubstr("q_proj.lora_A.weight")));
  }
}

/// adapter_config.json in a folder of its own.
class AdapterConfig : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string options(const nlohmann::json& changes) {
    nlohmann::json config{{"peft_type", "LORA"},
                          {"r", 4},
                          {"lora_alpha", 8},
                          {"lora_dropout", 0.1},
                          {"bias", "none"},
                          {"use_dora", false},
                          {"rank_pattern", nlohmann::json::object()},
                          {"target_modules", {"q_proj"}}};
    config.update(changes);
    std::filesystem::create_directories(folder_);
    std::ofstream(folder_ + "/adapter_config.json") << config.dump();
    return "pretrained: " + folder_;
  }

  const std::string folder_ =
      (std::filesystem::temp_directory_path() / ("gputrain-adapter-" + std::to_string(getpid()))).string();
};

TEST_F(AdapterConfig, GivesWhatTheJobLeavesOut) {
  const auto model = gpt(small_llama_spec());
  const auto adapter = lora(options({{"use_rslora", true}, {"modules_to_save", {"lm_head"}}}));
  adapter->adapt(*model);
  EXPECT_EQ(adapter->pretrained(), folder_);
  EXPECT_TRUE(trained(*model).contains("lm_head.weight"));
  const auto config = adapter->config_of(*model, "models/base");
  EXPECT_EQ(config["r"], 4);
  EXPECT_EQ(config["lora_alpha"], 8);
  EXPECT_EQ(config["lora_dropout"], 0.1);
  EXPECT_EQ(config["use_rslora"], true);
  EXPECT_EQ(config["target_modules"], nlohmann::json({"q_proj"}));
  EXPECT_EQ(config["modules_to_save"], nlohmann::json({"lm_head"}));
  EXPECT_EQ(config["base_model_name_or_path"], "models/base");
  EXPECT_EQ(config["task_type"], "CAUSAL_LM");
  GptSpec classifier = small_llama_spec();
  classifier.head = "classifier";
  EXPECT_EQ(adapter->config_of(*gpt(classifier), "")["task_type"], "SEQ_CLS");
}

std::unique_ptr<Encoder> encoder(const std::string& head) {
  return std::make_unique<Encoder>(EncoderSpec{.n_layer = 1, .n_head = 2, .n_embd = 8, .head = head}, nn::Context{},
                                   DataFacts{.input_shape = {6}, .num_classes = 3, .vocabulary = 11});
}

// A checkpoint holds all weights by the model's names, also those that an adapter adds to the layers of a head.
TEST(LoraOfEncoders, IsReadFromACheckpoint) {
  for (const char* head : {"classifier", "tagger", "mlm"}) {
    const auto from = encoder(head), to = encoder(head);
    std::map<std::string, at::Tensor> saved;
    for (const auto& model : {&from, &to}) lora("target_modules: all-linear, modules_to_save: []")->adapt(**model);
    nn::initialize(*from, 1);
    from->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
      if (name.ends_with("lora_B.weight")) parameter.value.detach().copy_(at::randn_like(parameter.value.detach()));
      saved[name] = parameter.value.detach();
    });
    nn::initialize(*to, 2);
    load_weights(*to, source_of(saved));
    EXPECT_TRUE(to->forward(tokens(1)).equal(from->forward(tokens(1)))) << head;
  }
}

TEST(LoraOfEncoders, TrainsAHeadOfItsOwn) {
  const auto model = encoder("tagger");
  const auto adapter = lora("target_modules: [query, value], modules_to_save: classifier");
  adapter->adapt(*model);
  EXPECT_EQ(trained(*model).size(), 6);
  EXPECT_TRUE(trained(*model).contains("classifier.weight"));
  const auto config = adapter->config_of(*model, "");
  EXPECT_EQ(config["task_type"], "TOKEN_CLS");
  EXPECT_EQ(config["target_modules"], nlohmann::json({"query", "value"}));
  EXPECT_TRUE(lora("target_modules: query")->config_of(*encoder("mlm"), "")["task_type"].is_null());
  EXPECT_THROW(lora("target_modules: query, modules_to_save: word_embeddings")->adapt(*encoder("mlm")), Error);
}

TEST_F(AdapterConfig, NamesEachLayerWhereNotAllAreAdapted) {
  const auto model = gpt(small_gpt2_spec());
  const auto adapter = lora("target_modules: attn.c_proj");
  adapter->adapt(*model);
  EXPECT_EQ(adapter->config_of(*model, "")["target_modules"],
            nlohmann::json({"transformer.h.0.attn.c_proj", "transformer.h.1.attn.c_proj"}));
}

TEST_F(AdapterConfig, RefusesWhatIsNotComputed) {
  const std::vector<std::pair<nlohmann::json, std::string>> cases{
      {{{"peft_type", "IA3"}}, "peft_type 'IA3'"},
      {{{"bias", "all"}}, "'bias: all'"},
      {{{"use_dora", "yes"}}, "'use_dora'"},
      {{{"rank_pattern", {{"q_proj", 0}}}}, "'rank_pattern' gives 'q_proj' no usable number: 0"},
      {{{"rank_pattern", {{"q_proj", 2.5}}}}, "2.5"},
      {{{"alpha_pattern", {{"q_proj", "8"}}}}, "'alpha_pattern'"},
      {{{"alpha_pattern", 8}}, "'alpha_pattern' is no object"},
      {{{"layers_to_transform", {0}}}, "'layers_to_transform'"},
      {{{"exclude_modules", {"k_proj"}}}, "'exclude_modules'"},
      {{{"init_lora_weights", "pissa"}}, "pissa"},
      {{{"a_new_setting", 3}}, "'a_new_setting'"},
      {{{"target_modules", nullptr}}, "'target_modules'"},
      {{{"r", "eight"}}, "'r'"}};
  for (const auto& [changes, told] : cases) {
    try {
      lora(options(changes));
      ADD_FAILURE() << changes << " is accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::data);
      EXPECT_THAT(error.what(), AllOf(HasSubstr(told), HasSubstr("adapter_config.json")));
    }
  }
}

TEST_F(AdapterConfig, MayNotBeContradicted) {
  try {
    lora(options(nlohmann::json::object()) + ", rank: 16");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("model.adapter.rank"), HasSubstr("is 16 here and 4 in")));
  }
  EXPECT_NO_THROW(lora(options(nlohmann::json::object()) + ", rank: 4, dropout: 0"));
}

}  // namespace
}  // namespace gputrain::models::adapter_files_testing
