// Twenty steps of encoders, from files of transformers, have the losses that transformers has with the same batches.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "gputrain/data/loader.hpp"
#include "gputrain/data/order.hpp"
#include "gputrain/job/job.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "support/program.hpp"
#include "support/python_reference.hpp"

namespace gputrain::testing_support {
namespace {

using Json = nlohmann::json;

constexpr int64_t kSteps = 20, kGlobalBatch = 12, kMicroBatch = 4;  // the last step of an epoch is smaller

struct TrainedEncoder {
  std::string name, head, data, text;
};
const std::vector<TrainedEncoder> kTrainedEncoders{
    {"bert_classifies", "classifier", "csv", ""},
    {"modernbert_classifies", "classifier", "csv", ""},
    {"bert_guesses", "mlm", "jsonl", ", masking: {fraction: 0.3, whole_words: true}"}};

/// The numbers of each step's samples.
Json sample_numbers(uint64_t seed, int64_t samples) {
  const int64_t steps_per_epoch = (samples + kGlobalBatch - 1) / kGlobalBatch;
  Json steps = Json::array();
  for (int64_t step = 0; step < kSteps; ++step) {
    const auto order = data::order_of_epoch(seed, step / steps_per_epoch, samples);
    const int64_t begin = step % steps_per_epoch * kGlobalBatch, end = std::min(begin + kGlobalBatch, samples);
    Json numbers = Json::array();
    for (int64_t position = begin; position < end; ++position) numbers.push_back(order(position));
    steps.push_back(std::move(numbers));
  }
  return steps;
}

/// Tokens and targets of each step's samples, as a run's loader gives them.
Json masked_samples(uint64_t seed, const app::JobDatasets& datasets) {
  data::Loader loader(datasets.train,
                      {.partition = {.global_batch = kGlobalBatch, .micro_batch = kMicroBatch}, .seed = seed});
  Json steps = Json::array();
  for (int64_t step = 0; step < kSteps; ++step) {
    Json samples = Json::array();
    for (const Batch& batch : loader.next_step().micro_batches) {
      const BatchField &tokens = *batch.find(kTokens), &targets = *batch.find(kTarget);
      const auto row_of = [](const BatchField& field, int64_t row) {
        const auto* values = field.values[row].const_data_ptr<int64_t>();
        return std::vector<int64_t>(values, values + field.counts[row].item<int64_t>());
      };
      for (int64_t row = 0; row < batch.samples; ++row)
        samples.push_back({{"tokens", row_of(tokens, row)}, {"targets", row_of(targets, row)}});
    }
    steps.push_back(std::move(samples));
  }
  return steps;
}

std::string write_job(const TemporaryFolder& folder, const TrainedEncoder& one) {
  return folder.write(one.name + "/job.yaml", R"(
seed: 5
device: cpu
precision: fp32
model: {type: bert, pretrained: )" + folder / one.name +
                                                  "/base, config: {head: " + one.head + R"(}}
data: {train: {path: )" + folder / one.name + "/data." +
                                                  one.data + ", format: " + one.data +
                                                  "}, text: {tokenizer: pretrained, max_length: 24" + one.text + R"(}}
train: {max_steps: 20, global_batch_size: 12, micro_batch_size: 4, max_grad_norm: 1.0}
optimizer: {type: adamw, lr: 1e-3, weight_decay: 0.1}
lr_scheduler: {type: constant}
log: {interval: 1}
)");
}

TEST(EncoderSteps, LoseWhatTransformersLoses) {
  GPUTRAIN_NEED_REFERENCE("transformers");
  const TemporaryFolder folder;
  const char* const script = "program/run/encoder_steps_reference.py";
  ASSERT_TRUE(gputrain::testing::run_reference(script, {"make", folder.path()}));
  for (const TrainedEncoder& one : kTrainedEncoders) {
    SCOPED_TRACE(one.name);
    const std::string file = write_job(folder, one);
    const Result result =
        gputrain({"run", file, "--output-dir", folder / (one.name + "/run")}, {{"OMP_NUM_THREADS", "1"}});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const app::Job job = app::load_job({.file = file, .set = {}, .output_dir = {}});
    const app::JobDatasets datasets = app::open_datasets(job);
    const auto seed = static_cast<uint64_t>(job.spec().seed);
    const Json steps =
        one.head == "mlm" ? masked_samples(seed, datasets) : sample_numbers(seed, datasets.train->size());
    folder.write(one.name + "/steps.json", steps.dump());
  }
  EXPECT_TRUE(gputrain::testing::run_reference(script, {"check", folder.path()}));
}

}  // namespace
}  // namespace gputrain::testing_support
