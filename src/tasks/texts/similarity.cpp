// Embeddings whose cosine is the similarity of two texts.
#include <algorithm>

#include <ATen/TensorOperators.h>
#include <ATen/ops/isnan.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/where.h>

#include "../scores.hpp"
#include "gputrain/nn/recompute.hpp"
#include "gputrain/tasks/logits.hpp"
#include "text_embeddings.hpp"

namespace gputrain::tasks {
namespace {

struct SimilaritySpec {
  std::vector<int64_t> matryoshka;

  static void describe(config::Description<SimilaritySpec>& d) {
    d.summary("embeddings of pairs of texts whose cosine is the number that the data gives");
    d.key("matryoshka", &SimilaritySpec::matryoshka,
          "the first so many channels shall serve as embeddings too: the losses are summed (arXiv:2205.13147)")
        .aliases({"matryoshka_dims"});
  }
};

class Similarity final : public Task {
 public:
  Similarity(const SimilaritySpec& spec, const TaskRequest&) : spec_(spec) {}

  static Target target() { return Target::pairs; }

  static bool fits(const TaskRequest& request) {
    return request.layout.find(kPairTokens) != nullptr && request.layout.target() != nullptr;
  }

  static std::vector<Metric> measures() {
    return {{.name = "loss",
             .smaller_is_better = true,
             .use = Metric::Use::result,
             .finish = [](const Totals& t) { return t.sums.at("loss") / std::max(1.0, t.weight); }},
            {.name = "pearson", .finish = [](const Totals& t) { return pearson(t.rows.at("numbers")); }},
            {.name = "spearman", .use = Metric::Use::best, .finish = [](const Totals& t) {
               return spearman(t.rows.at("numbers"));
             }}};
  }

  ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const override {
    const nn::ForwardPass pass;
    const auto [a, b] = embedded(model, batch);
    return loss_of_sum(errors(a, b, batch.tensor(kTarget)), weight);
  }

  Tally::Parts parts() const override { return {.sums = {"loss"}, .rows = {{.name = "numbers", .columns = 2}}}; }

  void evaluate(models::Model& model, const Batch& batch, Tally& tally) const override {
    const auto [a, b] = embedded(model, batch);
    const at::Tensor& targets = batch.tensor(kTarget);
    tally.add("loss", errors(a, b, targets).sum());
    tally.append("numbers", at::stack({cosines(a, b).to(at::kDouble), targets.to(at::kDouble)}, 1));
  }

 private:
  static std::pair<at::Tensor, at::Tensor> embedded(models::Model& model, const Batch& batch) {
    return {embeddings_of(model, batch, kTokens), embeddings_of(model, batch, kPairTokens)};
  }

  /// Returns squared errors of the cosines; 0 where the target does not count.
  at::Tensor errors(const at::Tensor& a, const at::Tensor& b, const at::Tensor& targets) const {
    at::Tensor sum;
    for (const int64_t length : lengths_to_learn(spec_.matryoshka, a.size(1))) {
      const at::Tensor found = cosines(a.narrow(1, 0, length), b.narrow(1, 0, length));
      const at::Tensor truth = at::where(at::isnan(targets), found.detach(), targets);
      const at::Tensor more = at::sub(found, truth).square();
      sum = sum.defined() ? sum + more : more;
    }
    return sum;
  }

  SimilaritySpec spec_;
};

const config::Registered<Similarity, SimilaritySpec> registered_similarity{
    catalog(), "similarity", "embeddings whose cosine is a number; squared error, pearson and spearman"};

}  // namespace
}  // namespace gputrain::tasks
