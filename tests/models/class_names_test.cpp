// Rows of a pretrained last layer follow the names of the classes.
#include "gputrain/models/class_names.hpp"

#include <map>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../../src/models/texts/encoder.hpp"
#include "gputrain/models/published.hpp"
#include "models/weights.hpp"

namespace gputrain::models {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;

TEST(ClassNames, GiveTheRowOfEachClass) {
  EXPECT_THAT(rows_by_name({"c", "a", "b"}, {"a", "b", "c"}), ElementsAre(1, 2, 0));
  EXPECT_THAT(rows_by_name({"POSITIVE", "Negative"}, {"negative", "positive"}), ElementsAre(1, 0));
  EXPECT_THAT(rows_by_name({"a", "A"}, {"A", "a"}), ElementsAre(1, 0)) << "as they are written, if that is enough";
  EXPECT_THAT(rows_by_name({"a", "A"}, {"a", "b"}), IsEmpty());
  EXPECT_THAT(rows_by_name({"o", "c", "a"}, {"a", "c"}), ElementsAre(2, 1, 0)) << "further rows follow";
  EXPECT_THAT(rows_by_name({"a"}, {"a", "b"}), IsEmpty());
  EXPECT_THAT(rows_by_name({}, {"a"}), IsEmpty());
  EXPECT_THAT(rows_by_name({"a"}, {}), IsEmpty());
}

TEST(ClassNames, AreReadFromConfigJson) {
  EXPECT_THAT(class_names_in({{"id2label", {{"1", "b"}, {"0", "a"}}}}), ElementsAre("a", "b"));
  EXPECT_THAT(class_names_in({{"label_names", {"x", "y"}}}), ElementsAre("x", "y"));
  EXPECT_THAT(class_names_in({{"id2label", {{"0", "LABEL_0"}, {"1", "LABEL_1"}}}}), IsEmpty());
  EXPECT_THAT(class_names_in({{"id2label", {{"0", "a"}, {"2", "b"}}}}), IsEmpty());
  EXPECT_THAT(class_names_in(json::object()), IsEmpty());
}

/// The rows of the last layer are 0, 1, 2 in the file; those of the model after loading.
std::vector<double> rows_after(const std::vector<int64_t>& class_rows, OtherClasses other_classes) {
  OtherHead same(3);
  for (auto& [name, tensor] : same.tensors)
    if (tensor.size(0) == 3)
      tensor = at::arange(3, at::kFloat).view({3, 1}).expand_as(tensor.view({3, -1})).contiguous().view(tensor.sizes());
  TensorSource source = source_of(same.tensors);
  source.class_rows = class_rows;
  load_weights(*same.model, source, other_classes);
  std::vector<double> weights, biases;
  same.model->each_parameter([&](const std::string& name, nn::Parameter& parameter) {
    if (parameter.value.size(0) != 3) return;
    for (int64_t row = 0; row < 3; ++row)
      (name.ends_with("bias") ? biases : weights).push_back(parameter.value[row].reshape({-1})[0].item<double>());
  });
  EXPECT_EQ(weights, biases);
  return weights;
}

TEST(ClassNames, OrderTheRowsOfTheLastLayerAlone) {
  for (const auto other_classes : {OtherClasses::left_out, OtherClasses::refused}) {
    EXPECT_THAT(rows_after({}, other_classes), ElementsAre(0, 1, 2));
    EXPECT_THAT(rows_after({2, 0, 1}, other_classes), ElementsAre(2, 0, 1));
    EXPECT_THAT(rows_after({1, 0}, other_classes), ElementsAre(0, 1, 2)) << "of another number of classes";
  }
}

json labels_of(const std::string& model, int64_t classes, std::vector<std::string> names) {
  return published_config(*build(
      load_job("model: " + model),
      {.input_shape = {4}, .num_classes = classes, .vocabulary = 11, .class_names = std::move(names)}))["id2label"];
}

TEST(ClassNames, AreWrittenInTheOrderOfTheRows) {
  const std::string bert =
                        "{type: bert, config: {head: classifier, n_layer: 1, n_head: 2, n_embd: 8, "
                        "labels: [x, b, a], num_classes: 3}}",
                    gpt =
                        "{type: gpt, config: {head: classifier, n_layer: 1, n_head: 2, n_embd: 8, labels: [x, b, a], "
                        "num_classes: 3}}";
  for (const std::string& model : {bert, gpt}) {
    EXPECT_EQ(labels_of(model, 3, {}), (json{{"0", "x"}, {"1", "b"}, {"2", "a"}}));
    EXPECT_EQ(labels_of(model, 3, {"p", "q", "r"}), (json{{"0", "p"}, {"1", "q"}, {"2", "r"}}));
    EXPECT_EQ(labels_of(model, 2, {"a", "b"}), (json{{"0", "a"}, {"1", "b"}, {"2", "x"}}));
    EXPECT_EQ(labels_of(model, 2, {"p", "q"}), (json{{"0", "LABEL_0"}, {"1", "LABEL_1"}, {"2", "LABEL_2"}}));
  }
}

TEST(ClassNames, OfALanguageModelThatClassifiesAreKept) {
  const json config{{"model_type", "llama"},   {"architectures", {"LlamaForSequenceClassification"}},
                    {"vocab_size", 11},        {"hidden_size", 8},
                    {"num_hidden_layers", 1},  {"num_attention_heads", 2},
                    {"intermediate_size", 16}, {"id2label", {{"0", "spam"}, {"1", "ham"}}}};
  const auto published = published_model(config, "");
  EXPECT_THAT(published.defaults, testing::Contains(testing::Pair("labels", "[\"spam\",\"ham\"]")));
}

}  // namespace
}  // namespace gputrain::models
