// Numbers for each sample: one of a text, or of two; one or several of an image.
#include <algorithm>
#include <string>
#include <utility>

#include <ATen/ops/cat.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/smooth_l1_loss.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>

#include "gputrain/tasks/logits.hpp"
#include "scores.hpp"

namespace gputrain::tasks {
namespace {

struct RegressionSpec {
  std::string loss = "mse";

  static void describe(config::Description<RegressionSpec>& d) {
    d.summary("a number for each text, or one or several for each image");
    d.key(
         "loss", &RegressionSpec::loss,
         "mse: the squared error; l1: its absolute value; smooth_l1: half the squared error, and beyond 1 the absolute "
         "value less a half (Girshick, arXiv:1504.08083); of several numbers the mean")
        .choices({"mse", "l1", "smooth_l1"});
  }
};

class Regression final : public Task {
 public:
  Regression(const RegressionSpec& spec, const TaskRequest& request)
      : loss_(spec.loss), is_text_(request.layout.token_count() > 0), columns_(request.layout.target()->numel()) {}

  static Target target() { return Target::number; }
  static Target head() { return Target::label; }

  static bool fits(const TaskRequest& request) {
    const data::Field* target = request.layout.target();
    if (request.layout.find(kPairTokens) != nullptr) return false;
    if (target == nullptr || target->type != at::kFloat) return false;
    return target->sizes.empty() || (request.layout.is_image() && request.model.target == Target::number);
  }

  static std::vector<Metric> measures() {
    const auto errors = [](const Totals& totals) { return Errors(totals.rows.at("numbers")); };
    return {{.name = "loss",
             .smaller_is_better = true,
             .use = Metric::Use::result,
             .finish = [](const Totals& t) { return t.sums.at("loss") / std::max(1.0, t.weight); }},
            {.name = "mae", .smaller_is_better = true, .finish = [=](const Totals& t) { return errors(t).mae(); }},
            {.name = "rmse", .smaller_is_better = true, .finish = [=](const Totals& t) { return errors(t).rmse(); }},
            {.name = "r2", .finish = [=](const Totals& t) { return errors(t).r2(); }},
            {.name = kPearson, .finish = [](const Totals& t) { return pearson(t.rows.at("numbers")); }},
            {.name = kSpearman, .use = Metric::Use::best, .finish = [](const Totals& t) {
               return spearman(t.rows.at("numbers"));
             }}};
  }

  ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const override {
    return loss_of_sum(losses(guesses_of(model, batch), targets_of(batch)), weight);
  }

  Tally::Parts parts() const override {
    return {.sums = {"loss"}, .rows = {{.name = "numbers", .columns = 2 * columns_}}};
  }

  void evaluate(models::Model& model, const Batch& batch, Tally& tally) const override {
    const at::Tensor guesses = guesses_of(model, batch), targets = targets_of(batch);
    tally.add("loss", losses(guesses, targets).sum());
    tally.append("numbers", at::cat({guesses.to(at::kDouble), targets.to(at::kDouble)}, 1));
  }

  at::Tensor outputs(const at::Tensor& logits) const override { return logits.narrow(-1, 0, columns_); }

 private:
  static constexpr const char* kPearson = "pearson";
  static constexpr const char* kSpearman = "spearman";

  /// Leaves out correlations for images, which may have several numbers.
  std::vector<Metric> chosen(std::vector<Metric> all) const override {
    if (is_text_) return all;
    std::erase_if(all, [](const Metric& metric) { return metric.name == kPearson || metric.name == kSpearman; });
    all.front().use = Metric::Use::best;
    return all;
  }

  at::Tensor guesses_of(models::Model& model, const Batch& batch) const { return outputs(wide_logits(model, batch)); }
  at::Tensor targets_of(const Batch& batch) const { return batch.tensor(kTarget).view({-1, columns_}); }

  /// Returns the mean over the numbers of each row; 0 where the target does not count.
  at::Tensor losses(const at::Tensor& guesses, const at::Tensor& targets) const {
    const at::Tensor truth = at::where(at::isnan(targets), guesses.detach(), targets.to(guesses.scalar_type()));
    if (loss_ == "smooth_l1") return at::smooth_l1_loss(guesses, truth, at::Reduction::None).mean(-1);
    const at::Tensor errors = at::sub(guesses, truth);
    return (loss_ == "l1" ? errors.abs() : errors.square()).mean(-1);
  }

  std::string loss_;
  bool is_text_;
  int64_t columns_;
};

const config::Registered<Regression, RegressionSpec> registered_regression{
    catalog(), "regression", "numbers for each text or image; loss, mae, rmse, r2, and of texts pearson and spearman"};

}  // namespace
}  // namespace gputrain::tasks
