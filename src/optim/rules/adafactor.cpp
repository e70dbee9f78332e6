// Adafactor: Shazeer and Stern, "Adafactor: adaptive learning rates with sublinear memory cost", ICML 2018; the
// arithmetic of torch.optim.Adafactor.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "../guarded_step.hpp"
#include "shared_keys.hpp"

namespace gputrain::optim {
namespace {

struct AdafactorSpec {
  double beta2_decay = -0.8;
  std::optional<double> eps1;
  double eps2 = 1e-3;
  double d = 1;
  double weight_decay = 0;

  static void describe(config::Description<AdafactorSpec>& d) {
    d.summary("steps in proportion to the size of weights; keeps of squared gradients only means of rows and columns");
    d.key("beta2_decay", &AdafactorSpec::beta2_decay,
          "power of the number of updates by which the share of new squares in the averages falls")
        .range(-10, 0)
        .change(config::Change::needs_accept)
        .aliases({"decay_rate"});
    d.key("eps1", &AdafactorSpec::eps1, "least root of an average; null: the machine epsilon of the weights' type")
        .above(0)
        .change(config::Change::needs_accept);
    d.key("eps2", &AdafactorSpec::eps2, "least size of a weight, by which the rate is multiplied")
        .at_least(0)
        .change(config::Change::needs_accept);
    d.key("d", &AdafactorSpec::d, "root mean square of an update above which it is scaled down")
        .at_least(1)
        .change(config::Change::needs_accept)
        .aliases({"clip_threshold"});
    describe_weight_decay(d);
  }
};

class Adafactor final : public Optimizer {
 public:
  static Abilities abilities() { return {.whole_tensors = true}; }

  Adafactor(const AdafactorSpec& spec, const device::Arena& arena)
      : spec_(spec),
        arena_(arena),
        step_(at::zeros({}, arena.options().dtype(at::kFloat))),
        eps_(spec.eps1.value_or(arena.type() == at::kDouble ? std::numeric_limits<double>::epsilon()
                                                            : std::numeric_limits<float>::epsilon())) {
    for (const OwnedTensor& tensor : owned_tensors(arena, spec.weight_decay)) {
      std::vector<int64_t> sizes = tensor.segment.sizes;
      Tensor& added = tensors_.emplace_back(Tensor{.of = tensor, .rows = {}, .columns = {}, .squares = {}});
      if (sizes.size() < 2) {
        added.squares = at::zeros(sizes, arena.options());
        continue;
      }
      const int64_t columns = std::exchange(sizes.back(), 1);
      added.rows = at::zeros(sizes, arena.options());
      sizes.back() = columns;
      sizes[sizes.size() - 2] = 1;
      added.columns = at::zeros(sizes, arena.options());
    }
  }

  void step(const StepScalars& scalars) override {
    const GuardedStep guarded(scalars, arena_.kept_values());
    const CountedStep counted(step_, scalars);
    std::map<double, at::Tensor> counts;  // keys: number of updates that a tensor has missed
    for (const Tensor& tensor : tensors_) {
      const auto late = since_.find(tensor.of.segment.name);
      const double since = late == since_.end() ? 0 : late->second;
      auto known = counts.find(since);
      if (known == counts.end()) known = counts.emplace(since, step_.to(at::kDouble) - since).first;
      update(tensor, guarded, known->second);
    }
    note_update(arena_, /*wrote_copy=*/false);
  }

  State state() override {
    OfWeights rows{.kind = "row_var", .tensors = {}}, columns{.kind = "col_var", .tensors = {}},
        squares{.kind = "variance", .tensors = {}};
    for (const Tensor& tensor : tensors_) {
      const std::string& name = tensor.of.segment.name;
      if (tensor.squares.defined()) {
        squares.tensors.emplace_back(name, tensor.squares);
      } else {
        rows.tensors.emplace_back(name, tensor.rows);
        columns.tensors.emplace_back(name, tensor.columns);
      }
    }
    State state{.flat = {}, .scalars = {{"step", step_}}, .of_weights = {rows, columns, squares}};
    add_counts(state, since_, step_);
    return state;
  }

  void count_since(const std::map<std::string, double>& since) override { since_ = since; }
  double updates() const override { return step_.item<double>(); }

  std::string describe() const override {
    return fmt::format("adafactor beta2_decay {} decay {}", spec_.beta2_decay, spec_.weight_decay);
  }

 private:
  /// Running averages of squared gradients: all of them, or of a matrix [..., rows, columns] their means along its last
  /// two dimensions.
  struct Tensor {
    OwnedTensor of;
    at::Tensor rows, columns;  // [..., rows, 1], [..., 1, columns]
    at::Tensor squares;
  };

  /// Returns the averages with `gradient` in them, as new memory that may be written.
  at::Tensor averages(const Tensor& tensor, const at::Tensor& gradient, const at::Tensor& share) const {
    if (tensor.squares.defined()) {
      tensor.squares.lerp_(gradient.square(), share);
      return tensor.squares.clone();
    }
    const auto means = [&](int64_t dim) {
      return gradient.norm(2, {dim}, /*keepdim=*/true).square_().div_(gradient.size(dim));
    };
    tensor.rows.lerp_(means(-1), share);
    tensor.columns.lerp_(means(-2), share);
    return tensor.rows.mul(tensor.columns).div_(tensor.rows.mean({-2}, /*keepdim=*/true).clamp_min_(eps_));
  }

  void update(const Tensor& tensor, const GuardedStep& guarded, const at::Tensor& count) const {
    const at::Tensor gradient = guarded.gradient(tensor.of.gradient), &value = tensor.of.value;
    const double root_numel = std::sqrt(static_cast<double>(std::max<int64_t>(value.numel(), 1)));
    const at::Tensor size = (value.norm().to(at::kDouble) / root_numel).clamp_min_(spec_.eps2);
    const at::Tensor lr = guarded.lr() * tensor.of.lr_factor, rate = size * lr.minimum(count.rsqrt());
    if (tensor.of.weight_decay != 0) value.mul_(guarded.decay(tensor.of.lr_factor, tensor.of.weight_decay));
    const at::Tensor share = guarded.guarded(at::pow(count, spec_.beta2_decay));
    const at::Tensor update = averages(tensor, gradient, share).clamp_min_(eps_ * eps_).rsqrt_().mul_(gradient);
    const at::Tensor excess = (update.norm().to(at::kDouble) / (root_numel * spec_.d)).clamp_min_(1);
    value.sub_(update.mul_(guarded.guarded(rate / excess)));
  }

  AdafactorSpec spec_;
  const device::Arena& arena_;
  at::Tensor step_;
  double eps_;
  std::vector<Tensor> tensors_;
  std::map<std::string, double> since_;
};

const config::Registered<Adafactor, AdafactorSpec> registered_adafactor{
    catalog(), "adafactor", "Adam's second average in factors, with little memory"};

}  // namespace
}  // namespace gputrain::optim
