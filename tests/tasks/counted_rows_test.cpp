// The last layer computes rows whose targets count, by a number that the loader gives: the same losses and gradients as
// of all rows.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/remainder.h>
#include <gtest/gtest.h>

#include "gputrain/config/load.hpp"
#include "gputrain/nn/layers.hpp"
#include "gputrain/tasks/task.hpp"

namespace gputrain::tasks {
namespace {

constexpr int64_t kVocabulary = 11, kFeatures = 6, kTexts = 4, kTime = 7;

/// A table and a head; counts the rows that the head computes.
class Words final : public models::Model {
 public:
  Words() : Model(nn::Context{.policy = {.master = at::kDouble, .compute = at::kDouble}}) {
    table_ = add_child<nn::Embedding>("table", context(),
                                      nn::Embedding::Options{.rows = kVocabulary, .channels = kFeatures});
    head_ = add_child<nn::Linear>("head", context(), nn::Linear::Options{.in = kFeatures, .out = kVocabulary});
    nn::initialize(*this, 5);
  }
  at::Tensor forward(const at::Tensor& tokens) override { return head_->forward(table_->forward(tokens)); }
  LastLayer last_layer(const Batch& batch) override {
    ops::Head head{.logits =
                       [this](const at::Tensor& rows) {
                         rows_ += rows.size(0);
                         return head_->forward(rows);
                       },
                   .parameters = {},
                   .columns = kVocabulary};
    head_->each_parameter([&](const std::string&, nn::Parameter& one) { head.parameters.push_back(one.value); });
    return {.features = table_->forward(batch.tensor(kTokens)), .head = head, .classes = kVocabulary};
  }
  std::vector<models::Unit> units() override { return {{"all", {this}}}; }

  /// Rows of the head since the last call.
  int64_t take_rows() { return std::exchange(rows_, 0); }
  std::vector<at::Tensor> take_gradients() {
    std::vector<at::Tensor> all;
    each_parameter([&](const std::string&, nn::Parameter& one) {
      all.push_back(one.value.grad().clone());
      one.value.mutable_grad().reset();
    });
    return all;
  }

 private:
  nn::Embedding* table_;
  nn::Linear* head_;
  int64_t rows_ = 0;
};

at::Tensor numbers_of(int64_t factor) {
  const at::Tensor all = at::arange(kTexts * kTime, at::TensorOptions().dtype(at::kLong)).view({kTexts, kTime});
  return at::remainder(all * factor + 3, kVocabulary);
}

/// Every third target counts, but none of the last row.
at::Tensor targets_of(int64_t factor) {
  const at::Tensor all = numbers_of(factor), place = at::arange(kTexts * kTime).view({kTexts, kTime});
  const at::Tensor counts = at::remainder(place, 3).eq(0).logical_and(place.lt((kTexts - 1) * kTime));
  return all.masked_fill(counts.logical_not(), kIgnoreIndex);
}

Batch batch_of(bool has_rejected) {
  const at::Tensor lengths = at::full({kTexts}, kTime, at::kLong);
  Batch batch{.fields = {{kTokens, numbers_of(5), lengths}, {kTarget, targets_of(3), lengths}},
              .samples = kTexts,
              .samples_on_all_ranks = kTexts,
              .weight = has_rejected ? kTexts : 7};
  if (!has_rejected) return batch;
  batch.fields.push_back({kRejectedTokens, numbers_of(7), lengths});
  batch.fields.push_back({kRejectedTarget, targets_of(4), lengths});
  batch.fields.push_back({kReference, at::full({kTexts, 2}, -3.0, at::kDouble)});
  return batch;
}

struct JobOfTokens {
  config::Choice type;

  static void describe(config::Description<JobOfTokens>& d) {
    d.choice("type", &JobOfTokens::type, catalog(), "the task", "config");
  }
};

std::unique_ptr<Task> task_of(const std::string& name, const Batch& batch) {
  data::SampleLayout layout;
  for (const BatchField& field : batch.fields)
    layout.fields.push_back({.name = field.name, .sizes = {field.values.size(1)}, .target = field.name == kTarget});
  const auto job = config::load(config::schema_of<JobOfTokens>(), {.file = "test.yaml", .text = "type: " + name});
  return catalog().make(job.as<JobOfTokens>().type,
                        {.layout = layout, .model = {.field = kTokens, .target = Target::next_token}});
}

class CountedRows : public ::testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Of, CountedRows, ::testing::Values("language_model", "dpo"),
                         [](const auto& one) { return one.param; });

TEST_P(CountedRows, LearnTheSameForAnyNumberThatHoldsThem) {
  Words model;
  Batch batch = batch_of(GetParam() == "dpo");
  const auto task = task_of(GetParam(), batch);
  const auto learn = [&] {
    const ops::Loss loss = task->loss(model, batch, at::full({}, 0.5, at::kDouble));
    loss.weighted.backward();
    return loss.sum;
  };
  const at::Tensor expected = learn();
  const std::vector<at::Tensor> gradients = model.take_gradients();
  model.take_rows();
  for (const int64_t most : {7, 8, 20}) {
    int64_t all = 0;
    for (BatchField& field : batch.fields) {
      const bool is_target = field.name == kTarget || field.name == kRejectedTarget;
      all += field.most_counted = is_target ? most : 0;
    }
    EXPECT_NEAR(learn().item<double>(), expected.item<double>(), 1e-12);
    EXPECT_EQ(model.take_rows(), all);
    const std::vector<at::Tensor> found = model.take_gradients();
    for (size_t i = 0; i < found.size(); ++i)
      EXPECT_LT((found[i] - gradients[i]).abs().max().item<double>(), 1e-12) << most;
  }
}

}  // namespace
}  // namespace gputrain::tasks
