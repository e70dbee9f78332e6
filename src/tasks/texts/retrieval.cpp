// Learning of embeddings of texts that are alike: near each other and far from all others.
#include <algorithm>
#include <cmath>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gt.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/log_softmax.h>
#include <ATen/ops/lt.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sub.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/negative_fields.hpp"
#include "gputrain/nn/recompute.hpp"
#include "gputrain/tasks/logits.hpp"
#include "text_embeddings.hpp"

namespace gputrain::tasks {
namespace {

struct RetrievalSpec {
  std::string loss = "ranking";
  double scale = 20, margin = 5;
  std::vector<int64_t> matryoshka;

  static void describe(config::Description<RetrievalSpec>& d) {
    d.summary("embeddings of pairs of texts that are alike, perhaps with a third that is not");
    d.key(
         "loss", &RetrievalSpec::loss,
         "ranking: a text's partner is the nearest of all partners, and of all negatives, in the micro-batches of all "
         "ranks, by cosine (Henderson et al., arXiv:1705.00652); triplet: it is nearer than the negative by the margin")
        .choices({"ranking", "triplet"});
    d.key("scale", &RetrievalSpec::scale, "of ranking: cosines are multiplied by it").above(0);
    d.key("margin", &RetrievalSpec::margin, "of triplet: in Euclidean distance").above(0);
    d.key("matryoshka", &RetrievalSpec::matryoshka,
          "the first so many channels shall serve as embeddings too: the losses are summed (arXiv:2205.13147)")
        .aliases({"matryoshka_dims"});
  }
};

/// Marks the rows that count in tensors gathered from all ranks; each rank gave `rows`, `own` of them samples.
at::Tensor counted_of_ranks(int64_t own, int64_t rows, const at::TensorOptions& options, comm::ProcessGroups& groups) {
  const at::TensorOptions numbers = options.dtype(at::kLong);
  const at::Tensor counts = groups.tensors().all_gather(at::full({1}, own, numbers), "samples of all ranks");
  return at::lt(at::arange(rows, numbers).unsqueeze(0), counts).flatten();
}

class Retrieval final : public Task {
 public:
  Retrieval(const RetrievalSpec& spec, const TaskRequest& request) : spec_(spec) {
    while (request.layout.find(data::negative_tokens(negatives_)) != nullptr) ++negatives_;
    if (spec_.loss == "triplet" && negatives_ == 0)
      throw Error(ExitCode::usage, {.what = "a triplet needs a third text, and the data has none",
                                    .where = "task.config.loss",
                                    .hint = "loss: ranking, or data.text.columns.negative"});
  }

  static Target target() { return Target::pairs; }
  static Abilities abilities(const RetrievalSpec& spec) { return {.compares_samples = spec.loss == "ranking"}; }

  static bool fits(const TaskRequest& request) {
    return request.layout.find(kPairTokens) != nullptr && request.layout.target() == nullptr;
  }

  static std::vector<Metric> measures() {
    return {{.name = "loss",
             .smaller_is_better = true,
             .use = Metric::Use::result,
             .finish = [](const Totals& t) { return t.sums.at("loss") / std::max(1.0, t.weight); }},
            {.name = "recall_at_1",
             .unit = "%",
             .use = Metric::Use::best,
             .finish = [](const Totals& t) { return recall(t.rows.at("embeddings"), 1); }},
            {.name = "recall_at_10", .unit = "%", .finish = [](const Totals& t) {
               return recall(t.rows.at("embeddings"), 10);
             }}};
  }

  ops::Loss loss(models::Model& model, const Batch& batch, const at::Tensor& weight) const override {
    const nn::ForwardPass pass;
    return loss_of_sum(losses(embedded(model, batch), batch, groups()), weight);
  }

  Tally::Parts parts() const override { return {.sums = {"loss"}, .rows = {{.name = "embeddings", .columns = 0}}}; }

  /// Evaluates the loss among the samples of each batch of this rank.
  void evaluate(models::Model& model, const Batch& batch, Tally& tally) const override {
    const auto texts = embedded(model, batch);
    tally.add("loss", losses(texts, batch, nullptr).sum());
    tally.append("embeddings", at::cat({unit_length(texts[0]), unit_length(texts[1])}, 1).narrow(0, 0, batch.samples));
  }

 private:
  using Texts = std::vector<at::Tensor>;  // embeddings of each field

  Texts embedded(models::Model& model, const Batch& batch) const {
    Texts texts{embeddings_of(model, batch, kTokens), embeddings_of(model, batch, kPairTokens)};
    for (int64_t i = 0; i < negatives_; ++i) texts.push_back(embeddings_of(model, batch, data::negative_tokens(i)));
    return texts;
  }

  at::Tensor losses(const Texts& texts, const Batch& batch, comm::ProcessGroups* groups) const {
    at::Tensor sum;
    for (const int64_t length : lengths_to_learn(spec_.matryoshka, texts[0].size(1))) {
      Texts cut;
      for (const at::Tensor& text : texts) cut.push_back(text.narrow(1, 0, length));
      const at::Tensor more = spec_.loss == "triplet" ? triplet(cut, batch.samples) : ranking(cut, batch, groups);
      sum = sum.defined() ? sum + more : more;
    }
    return sum;
  }

  at::Tensor triplet(const Texts& texts, int64_t samples) const {
    const auto distance = [&](const at::Tensor& to) {
      constexpr double kNoZero = 1e-6;  // like torch's pairwise_distance: the root has no slope at zero
      return at::linalg_vector_norm(at::sub(texts[0], to) + kNoZero, 2, at::IntArrayRef{-1});
    };
    at::Tensor sum;
    for (size_t i = 2; i < texts.size(); ++i) {
      const at::Tensor one = at::relu(distance(texts[1]) - distance(texts[i]) + spec_.margin).narrow(0, 0, samples);
      sum = sum.defined() ? sum + one : one;
    }
    return sum / static_cast<double>(negatives_);
  }

  /// Ranks candidates. All ranks have as many rows: they share a micro-batch evenly, and its padding stands last.
  at::Tensor ranking(const Texts& texts, const Batch& batch, comm::ProcessGroups* groups) const {
    const int64_t own = batch.samples, rows = texts[0].size(0);
    const bool is_alone = groups == nullptr || groups->alone();
    const at::Tensor first = unit_length(texts[0]).narrow(0, 0, own);
    std::vector<at::Tensor> candidates;
    for (size_t i = 1; i < texts.size(); ++i) {
      const at::Tensor unit = unit_length(texts[i]);
      candidates.push_back(is_alone ? unit.narrow(0, 0, own) : rows_of_all_ranks(unit, *groups));
    }
    at::Tensor scores = at::matmul(first, at::cat(candidates).t()) * spec_.scale;
    if (!is_alone) {
      const at::Tensor counted = counted_of_ranks(own, rows, scores.options(), *groups);
      const std::vector<at::Tensor> of_each(candidates.size(), counted);
      scores = scores.masked_fill(at::cat(of_each).logical_not(), -INFINITY);
    }
    const int64_t begin = is_alone ? 0 : groups->rank() * rows;
    const at::Tensor partners = at::arange(begin, begin + own, scores.options().dtype(at::kLong));
    return at::log_softmax(scores, 1).gather(1, partners.unsqueeze(1)).squeeze(1).neg();
  }

  /// Returns the percentage of texts whose partner is among the `nearest` nearest partners.
  static double recall(const at::Tensor& rows, int64_t nearest) {
    const int64_t count = rows.size(0), channels = rows.size(1) / 2;
    if (count == 0) return 0;
    const at::Tensor partners = rows.narrow(1, channels, channels).t().contiguous();
    constexpr int64_t kTogether = 256;
    double hits = 0;
    for (int64_t begin = 0; begin < count; begin += kTogether) {
      const int64_t size = std::min(kTogether, count - begin);
      const at::Tensor scores = at::matmul(rows.narrow(0, begin, size).narrow(1, 0, channels), partners);
      const at::Tensor own = scores.diagonal(begin).unsqueeze(1);
      const at::Tensor nearer = at::gt(scores, own).sum(1);
      hits += at::lt(nearer, nearest).sum().item<double>();
    }
    return 100 * hits / static_cast<double>(count);
  }

  RetrievalSpec spec_;
  int64_t negatives_ = 0;  // negative texts of each sample
};

const config::Registered<Retrieval, RetrievalSpec> registered_retrieval{
    catalog(), "retrieval", "embeddings of texts that are alike; loss, recall_at_1 and recall_at_10"};

}  // namespace
}  // namespace gputrain::tasks
