// Our encoders and those of transformers give the same results, loss and gradients for the same weights and texts, and
// each side reads what the other writes.
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <unistd.h>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/tasks/cross_entropy.hpp"
#include "models/small_job.hpp"
#include "ops/compare.hpp"
#include "parity/reference_files.hpp"
#include "support/python_reference.hpp"

namespace gputrain::models {
namespace {

namespace fs = std::filesystem;
using checkpoint::SafetensorsFile;
using testing_support::relative_error;

const std::vector<std::string> kCases{
    "bert-mlm",       "bert-classifier",       "bert-tagger",          "bert-embedder",
    "roberta-mlm",    "roberta-classifier",    "roberta-tagger",       "roberta-embedder",
    "distilbert-mlm", "distilbert-classifier", "distilbert-tagger",    "distilbert-embedder",
    "modernbert-mlm", "modernbert-classifier", "modernbert-tagger",    "modernbert-embedder",
    "bert_relu-mlm",  "xlm_roberta-mlm",       "camembert-classifier", "modernbert_mean-classifier"};

/// The model that a job builds for this folder, without its weights.
std::unique_ptr<Model> encoder_of(const fs::path& folder, const nn::Context& context = {}) {
  const std::string text = "model: {type: bert}\n";
  std::ifstream file(folder / "config.json");
  const auto published = published_model(nlohmann::json::parse(file), folder / "config.json");
  const auto settings = settings_of(published, load_job(text), "model");
  return build(load_job(text, settings), {.input_shape = {20}, .num_classes = 5, .vocabulary = 97}, context);
}

bool has_references() {
  return gputrain::testing::has_reference("transformers") && gputrain::testing::has_reference("safetensors");
}

/// Runs the reference once for all tests.
class EncoderReferences final : public ::testing::Environment {
 public:
  void SetUp() override {
    if (!has_references()) return;
    folder = fs::temp_directory_path() / ("gputrain-encoders-" + std::to_string(getpid()));
    fs::create_directories(folder);
    ASSERT_TRUE(gputrain::testing::run_reference("parity/encoder_reference.py", {"make", folder}));
  }
  void TearDown() override {
    if (!folder.empty()) fs::remove_all(folder);
  }
  fs::path folder;
};
EncoderReferences* const references = [] {
  auto* environment = new EncoderReferences;
  ::testing::AddGlobalTestEnvironment(environment);  // takes ownership
  return environment;
}();

class EncoderParity : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    GPUTRAIN_NEED_REFERENCE("transformers");
    GPUTRAIN_NEED_REFERENCE("safetensors");
    folder_ = references->folder;
  }
  fs::path folder_;
};
INSTANTIATE_TEST_SUITE_P(Encoders, EncoderParity, ::testing::ValuesIn(kCases), [](const auto& entry) {
  std::string name = entry.param;
  name[name.find('-')] = '_';
  return name;
});

Batch padded_batch(const SafetensorsFile& file) {
  Batch batch{.fields = {{kTokens, file.tensor("tokens"), file.tensor("lengths")}}};
  for (const auto& [theirs, ours] : {std::pair{"token_types", kTokenTypes}, std::pair{"targets", kTarget}}) {
    const auto names = file.names();
    if (std::ranges::find(names, theirs) != names.end()) batch.fields.push_back({ours, file.tensor(theirs)});
  }
  batch.samples = batch.samples_on_all_ranks = batch.input().size(0);
  return batch;
}

/// Logits, or of an embedder the vectors; 0 where there is padding.
at::Tensor results_of(Model& model, const Batch& batch) {
  const auto last = model.last_layer(batch);
  const at::Tensor results = last.head.logits ? last.head.logits(last.features) : last.features;
  EXPECT_EQ(results.size(-1), last.classes);
  if (results.dim() == 2) return results;
  const at::Tensor lengths = batch.find(kTokens)->counts;
  return results * at::arange(results.size(1)).lt(lengths.unsqueeze(1)).unsqueeze(2);
}

struct Tolerances {
  double values, gradients;
};

void expect_parity(const fs::path& folder, const nn::Context& context, const Tolerances& tolerances) {
  const auto model = encoder_of(folder, context);
  const SafetensorsFile weights(folder / "model.safetensors"), expected(folder / "expected.safetensors");
  load_weights(*model, source_of(weights));
  const Batch batch = padded_batch(expected);
  {
    const at::NoGradGuard no_grad;
    EXPECT_LT(relative_error(model->forward(expected.tensor("tokens_without_padding")),
                             expected.tensor("results_without_padding")),
              tolerances.values);
    EXPECT_LT(relative_error(results_of(*model, batch), expected.tensor("results")), tolerances.values);
  }
  const at::Tensor loss = tasks::cross_entropy_loss(*model, batch, 0, {}).weighted;
  EXPECT_LT(relative_error(loss, expected.tensor("loss")), tolerances.values);
  loss.backward();
  expect_equal_gradients(*model, expected, tolerances.gradients);
}

TEST_P(EncoderParity, MatchesResultsLossAndGradients) {
  // transformers rotates in fp32 whatever the type.
  const double tolerance = GetParam().starts_with("modernbert") ? 1e-6 : 1e-9;
  expect_parity(folder_ / GetParam(), {.policy = ops::policy_of(ops::Precision::fp64)},
                {.values = tolerance, .gradients = tolerance});
}

TEST_P(EncoderParity, KeepsFiveDigitsInSinglePrecision) {
  expect_parity(folder_ / GetParam(), {}, {.values = 1e-5, .gradients = 1e-4});
}

TEST_F(EncoderParity, WritesFilesTheReferenceLoads) {
  for (const std::string& name : kCases) {
    const fs::path folder = folder_ / name / "ours";
    fs::create_directories(folder);
    const auto model = encoder_of(folder_ / name);
    nn::initialize(*model, 5);
    const Batch batch = padded_batch(SafetensorsFile(folder_ / name / "expected.safetensors"));
    const at::NoGradGuard no_grad;
    model->train(false);
    checkpoint::write_safetensors(folder / "model.safetensors", tensors_of(*model));
    checkpoint::NamedTensors results{
        {"tokens", batch.input()}, {"lengths", batch.find(kTokens)->counts}, {"results", results_of(*model, batch)}};
    if (const BatchField* types = batch.find(kTokenTypes)) results.emplace_back("token_types", types->values);
    checkpoint::write_safetensors(folder / "results.safetensors", results);
    std::ofstream(folder / "config.json") << published_config(*model).dump(2);
  }
  EXPECT_TRUE(gputrain::testing::run_reference("parity/encoder_reference.py", {"check", folder_}));
}

}  // namespace
}  // namespace gputrain::models
