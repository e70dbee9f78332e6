// Losses of one class for each sample, for hard targets and for those of mixed images.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/describe.hpp"
#include "gputrain/tasks/task.hpp"

namespace gputrain::tasks {

/// Weights of classes; null: all count alike; auto: in inverse proportion to how many samples they have.
using ClassWeights = std::optional<config::Auto<std::vector<double>>>;

struct ClassLossSpec {
  std::string loss = "cross_entropy";
  ClassWeights class_weights;
  std::optional<double> target_threshold;
  bool sum_classes = false;
  double gamma = 2;
  std::optional<double> alpha = 0.25;

  /// Describes the key that other tasks with classes have too.
  template <class Spec>
  static void describe_weights(config::Description<Spec>& d) {
    d.key("class_weights", &Spec::class_weights,
          "how much each class counts, in order of their numbers: a sample's loss counts as much as its class, and the "
          "mean over a step is divided by the sum of these weights, as by torch's CrossEntropyLoss; auto: samples / "
          "(classes x samples of the class), as scikit-learn's balanced; null: all alike")
        .at_least(0)
        .aliases({"class_weight"});
  }

  template <class Spec>
  static void describe_loss(config::Description<Spec>& d) {
    d.key("loss", &Spec::loss,
          "cross_entropy: of a softmax; bce: of a sigmoid for each class, with targets 0 and 1 (Wightman et al., "
          "arXiv:2110.00476); focal: the same, where a class counts the less the better it is known (Lin et al., "
          "arXiv:1708.02002)")
        .choices({"cross_entropy", "bce", "focal"});
    d.key("target_threshold", &Spec::target_threshold,
          "of bce: targets of mixed or smoothed classes above it become 1, others 0; null: they stay")
        .range(0, 1)
        .aliases({"bce_target_thresh"});
    d.key("sum_classes", &Spec::sum_classes, "of bce: a sample's loss is the sum over the classes, not their mean")
        .aliases({"bce_sum"});
    d.key("gamma", &Spec::gamma, "of focal: the loss is multiplied by (1 - probability of the truth) to this power")
        .at_least(0);
    d.key("alpha", &Spec::alpha, "of focal: weight of the target's class, 1 - alpha of the others; null: 1 for all")
        .range(0, 1);
    d.check([](const Spec& spec, config::SpecIssues& issues) { check(spec, issues); });
  }

 private:
  static void check(const ClassLossSpec& spec, config::SpecIssues& issues);
};

/// Returns the weight of each class; empty: all count alike. Throws Error(usage) if there are not as many as classes,
/// or none is above 0.
std::vector<double> weights_of_classes(const ClassWeights& wanted, const TaskRequest& request);

class ClassLoss {
 public:
  ClassLoss(const ClassLossSpec& spec, const TaskRequest& request);

  /// Returns the loss; see Task::loss(). Targets are int64 [batch], with data::kMixedTarget and kMixedPart if mixed.
  ops::Loss operator()(models::Model& model, const Batch& batch, const at::Tensor& weight) const;

  /// Returns the same sum for a batch that is not mixed, without smoothing and without an autograd graph: a double on
  /// the model's device. Calls `visit` with logits [rows, classes] and targets [rows] of each part.
  at::Tensor evaluate(models::Model& model, const Batch& batch,
                      const std::function<void(const at::Tensor&, const at::Tensor&)>& visit) const;

  /// Returns the loss of each row, without smoothing, as if all classes counted alike; targets are at least 0.
  at::Tensor each(const at::Tensor& logits, const at::Tensor& targets) const;

  /// Returns [rows, classes], of the type of the logits.
  at::Tensor probabilities(const at::Tensor& logits) const;

  /// Returns the sum of the weights of these targets' classes: a 0-dim double.
  at::Tensor weight_of(const at::Tensor& targets) const;

  const std::vector<double>& class_weights() const noexcept { return class_weights_; }

 private:
  /// Targets of a batch.
  struct Wanted {
    at::Tensor probabilities;  // [rows, classes]; 0 in a row that does not count
    at::Tensor counts;         // [rows]: 1; 0 for one that does not count; or the part of a mixed one that does
    at::Tensor weights;        // [rows]: the same, times the weights of the classes
  };
  bool is_fused() const { return spec_.loss == "cross_entropy" && class_weights_.empty(); }
  Wanted wanted(const Batch& batch, const at::Tensor& logits, double smoothing) const;
  at::Tensor losses(const at::Tensor& logits, const Wanted& wanted) const;
  at::Tensor of_probabilities(const at::Tensor& logits, const at::Tensor& probabilities) const;
  at::Tensor weights_on(at::Device device, int64_t classes) const;

  ClassLossSpec spec_;
  double smoothing_;
  std::vector<double> class_weights_;
  mutable at::Tensor weights_;  // copy where the logits are, made at the first use, not in a recorded step
};

}  // namespace gputrain::tasks
