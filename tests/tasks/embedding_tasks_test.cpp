// Losses of embeddings against their formulas, pair by pair; the same on several ranks as on one.
#include <cmath>
#include <cstdlib>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/floor_divide.h>
#include <ATen/ops/full.h>
#include <ATen/ops/remainder.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"
#include "gputrain/config/load.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/tasks/task.hpp"

namespace gputrain::tasks {
namespace {

constexpr int64_t kWords = 11, kChannels = 6, kLength = 3;

/// The mean of a table's rows.
class Pooled final : public models::Model {
 public:
  Pooled() : Model(nn::Context{.policy = {.master = at::kDouble, .compute = at::kDouble}}) {
    table_ =
        add_child<nn::Embedding>("table", context(), nn::Embedding::Options{.rows = kWords, .channels = kChannels});
    nn::initialize(*this, 5);
  }
  at::Tensor forward(const at::Tensor& tokens) override { return table_->forward(tokens).mean(1); }
  std::vector<models::Unit> units() override { return {{"all", {this}}}; }
  const at::Tensor& table() const { return table_->weight(); }

 private:
  nn::Embedding* table_;
};

data::SampleLayout layout_of(bool has_negatives, bool has_numbers) {
  data::SampleLayout layout;
  layout.fields = {{.name = kTokens, .sizes = {kLength}}, {.name = kPairTokens, .sizes = {kLength}}};
  if (has_negatives) layout.fields.push_back({.name = kNegativeTokens, .sizes = {kLength}});
  if (has_numbers) layout.fields.push_back({.name = kTarget, .type = at::kFloat, .target = true});
  return layout;
}

/// Samples [begin, end) of `all`, and rows of padding up to `rows`, or one.
Batch batch_of(int64_t begin, int64_t end, int64_t all, bool has_negatives, int64_t rows = 0) {
  Batch batch{.fields = {}, .samples = end - begin, .samples_on_all_ranks = all, .weight = end - begin};
  rows = std::max(rows, end - begin + 1);
  for (const auto& [name, factor] : {std::pair{kTokens, 3}, {kPairTokens, 5}, {kNegativeTokens, 7}}) {
    if (std::string_view(name) == kNegativeTokens && !has_negatives) continue;
    const at::Tensor numbers =
        at::arange(begin * kLength, (begin + rows) * kLength, at::TensorOptions().dtype(at::kLong))
            .view({rows, kLength});
    batch.fields.push_back({name, at::remainder(numbers * factor + at::floor_divide(numbers, 4), kWords)});
  }
  return batch;
}

struct JobWithTask {
  config::Choice type;

  static void describe(config::Description<JobWithTask>& d) {
    d.choice("type", &JobWithTask::type, catalog(), "the task", "config");
  }
};

std::unique_ptr<Task> task_of(const std::string& yaml, const data::SampleLayout& layout) {
  const auto job =
      config::load(config::schema_of<JobWithTask>(), {.file = "test.yaml", .text = yaml}).as<JobWithTask>();
  return catalog().make(job.type, {.layout = layout, .model = {.field = kTokens, .target = Target::pairs}});
}

constexpr const char* kRetrieval = "type: retrieval";

double dot(const at::Tensor& a, const at::Tensor& b) { return (a * b).sum().item<double>(); }
double cosine(const at::Tensor& a, const at::Tensor& b) { return dot(a, b) / std::sqrt(dot(a, a) * dot(b, b)); }

/// Of `samples` samples: the loss of each against all partners and negatives, one by one.
double ranking_by_hand(Pooled& model, int64_t samples, bool has_negatives) {
  const Batch batch = batch_of(0, samples, samples, has_negatives);
  std::vector<at::Tensor> texts;
  for (const BatchField& field : batch.fields) texts.push_back(model.forward(field.values).detach());
  double sum = 0;
  for (int64_t i = 0; i < samples; ++i) {
    double all = 0;
    for (size_t text = 1; text < texts.size(); ++text)
      for (int64_t j = 0; j < samples; ++j) all += std::exp(20 * cosine(texts[0][i], texts[text][j]));
    sum += std::log(all) - 20 * cosine(texts[0][i], texts[1][i]);
  }
  return sum;
}

TEST(RetrievalLoss, ComparesATextWithAllPartners) {
  for (const bool has_negatives : {false, true}) {
    Pooled model;
    const auto task = task_of(kRetrieval, layout_of(has_negatives, false));
    const ops::Loss loss = task->loss(model, batch_of(0, 5, 5, has_negatives), {});
    EXPECT_NEAR(loss.sum.item<double>(), ranking_by_hand(model, 5, has_negatives), 1e-9);
  }
}

TEST(RetrievalLoss, KeepsPartnersNearerThanNegatives) {
  Pooled model;
  const Batch batch = batch_of(0, 4, 4, true);
  double sum = 0;
  for (int64_t i = 0; i < 4; ++i) {
    const auto distance = [&](size_t text) {
      return (model.forward(batch.fields[0].values)[i] - model.forward(batch.fields[text].values)[i])
          .norm()
          .item<double>();
    };
    sum += std::max(0.0, distance(1) - distance(2) + 5);
  }
  const auto task = task_of("{type: retrieval, config: {loss: triplet}}", layout_of(true, false));
  EXPECT_NEAR(task->loss(model, batch, {}).sum.item<double>(), sum, 1e-4);
  EXPECT_THROW(task_of("{type: retrieval, config: {loss: triplet}}", layout_of(false, false)), Error);
}

TEST(SimilarityLoss, IsTheSquaredErrorOfCosines) {
  Pooled model;
  Batch batch = batch_of(0, 3, 3, false);
  batch.fields.push_back({kTarget, at::full({4}, 0.5, at::kFloat)});
  batch.fields.back().values[3].fill_(std::nan(""));
  double sum = 0;
  for (int64_t i = 0; i < 3; ++i) {
    const double error =
        cosine(model.forward(batch.fields[0].values)[i], model.forward(batch.fields[1].values)[i]) - 0.5;
    sum += error * error;
  }
  const auto task = task_of("type: similarity", layout_of(false, true));
  const ops::Loss loss = task->loss(model, batch, {});
  EXPECT_NEAR(loss.sum.item<double>(), sum, 1e-9);
  loss.weighted.backward();
  EXPECT_FALSE(model.table().grad().isnan().any().item<bool>());
}

/// Seven samples, as an epoch's end leaves them: six for the first rank, one for the second, none for a third. Loss and
/// gradients summed over ranks are those of one rank.
const gputrain::testing::RankBody kRanking("ranking", [] {
  comm::ProcessGroups groups = gputrain::testing::join();
  constexpr int64_t kSamples = 7, kRows = 6;
  const bool has_negatives = std::string(std::getenv("NEGATIVES")) == "1";
  const int64_t rank = groups.rank();
  const data::SampleLayout layout = layout_of(has_negatives, false);
  Pooled one, many;
  const auto alone = task_of(kRetrieval, layout), together = task_of(kRetrieval, layout);
  together->join(groups);
  const ops::Loss whole = alone->loss(one, batch_of(0, kSamples, kSamples, has_negatives), {});
  whole.weighted.backward();
  const ops::Loss part =
      together->loss(many,
                     batch_of(std::min(kSamples, kRows * rank), std::min(kSamples, kRows * (rank + 1)), kSamples,
                              has_negatives, kRows + 1),
                     {});
  part.weighted.backward();
  const at::Tensor sum = part.sum.clone(), gradient = many.table().grad().clone();
  groups.tensors().all_reduce_sum(sum, "loss").wait();
  groups.tensors().all_reduce_sum(gradient, "gradient").wait();
  const double error = (gradient - one.table().grad()).abs().max().item<double>();
  groups.control().barrier("end");
  return std::abs((sum - whole.sum).item<double>()) < 1e-9 && error < 1e-9 ? 0 : 98;
});

TEST(RetrievalLoss, IsTheSameOnSeveralRanks) {
  for (const int ranks : {2, 3}) {
    for (const char* negatives : {"0", "1"}) {
      gputrain::testing::RankProcesses processes("ranking", ranks, {{"NEGATIVES", negatives}});
      for (const auto& result : processes.finish()) EXPECT_EQ(result.exit_code, 0) << result.output;
    }
  }
}

}  // namespace
}  // namespace gputrain::tasks
