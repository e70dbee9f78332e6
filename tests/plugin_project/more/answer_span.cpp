// A task with samples of its own: where in a text its answer stands, as two fractions of the text's length.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include <ATen/ops/isnan.h>
#include <ATen/ops/square.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>

#include "gputrain/core/error.hpp"
#include "gputrain/records/record_reader.hpp"
#include "gputrain/tasks/logits.hpp"
#include "gputrain/tasks/task.hpp"

namespace {

using namespace gputrain;

constexpr Target kSpan{"answer_span", "where in a text an answer stands"};

class SpanReader final : public records::RecordReader {
 public:
  std::vector<std::string> columns() const override { return {"text", "answer"}; }
  std::vector<std::string> texts(const nlohmann::ordered_json& record) const override {
    return {records::text_in(record, "text")};
  }
  data::SampleLayout learned() const override {
    return {.fields = {{.name = kTarget, .type = at::kFloat, .sizes = {2}, .fill = std::nan(""), .target = true}},
            .outputs = 2};
  }
  std::vector<float> numbers(const nlohmann::ordered_json& record) const override {
    const std::string text = records::text_in(record, "text"), answer = records::text_in(record, "answer");
    const size_t begin = text.find(answer);
    if (begin == std::string::npos) throw Error(ExitCode::data, {.what = "the answer is not in the text"});
    const auto fraction = [&](size_t at) { return static_cast<float>(at) / static_cast<float>(text.size()); };
    return {fraction(begin), fraction(begin + answer.size())};
  }
};

class AnswerSpan final : public tasks::Task {
 public:
  AnswerSpan(const config::NoOptions&, const tasks::TaskRequest&) {}

  static Target target() { return kSpan; }
  static Target head() { return Target::label; }
  static std::unique_ptr<records::RecordReader> reader(const data::DatasetRequest&) {
    return std::make_unique<SpanReader>();
  }
  static bool fits(const tasks::TaskRequest& request) { return request.model.target == kSpan; }
  static std::vector<tasks::Metric> measures() {
    return {{.name = "loss",
             .smaller_is_better = true,
             .use = tasks::Metric::Use::best,
             .finish = [](const tasks::Totals& totals) { return totals.sums.at("loss") / totals.weight; }}};
  }

  ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const override {
    return tasks::loss_of_sum(errors(model, batch), weight);
  }
  tasks::Tally::Parts parts() const override { return {.sums = {"loss"}}; }
  void evaluate(models::Model& model, const Batch& batch, tasks::Tally& tally) const override {
    tally.add("loss", errors(model, batch).sum());
  }
  at::Tensor outputs(const at::Tensor& logits) const override { return logits; }

 private:
  /// The squared error of each sample; 0 for padding, whose numbers are NaN.
  static at::Tensor errors(models::Model& model, const Batch& batch) {
    const at::Tensor guesses = tasks::wide_logits(model, batch), truth = batch.tensor(kTarget);
    return at::square(at::sub(guesses, at::where(at::isnan(truth), guesses.detach(), truth))).mean(-1);
  }
};

const config::Registered<AnswerSpan, config::NoOptions> registered_span{tasks::catalog(), "answer_span",
                                                                        "where in a text its answer stands"};

}  // namespace
