// AdamW whose averages have 8 bits: Dettmers et al., "8-bit optimizers via block-wise quantization", ICLR 2022. Each
// element is a place in a table of 256 values, times the largest magnitude in its block of 256 elements. The arithmetic
// between is that of torch.optim.AdamW. Weights in bf16 are updated in fp32 and rounded stochastically.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/ops/bucketize.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include "../guarded_step.hpp"
#include "gputrain/ops/blockwise_update.hpp"
#include "shared_keys.hpp"

namespace gputrain::optim {
namespace {

struct AdamW8bitSpec {
  std::vector<double> betas{0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0.01;
  int64_t min_8bit_size = 4096;

  static void describe(config::Description<AdamW8bitSpec>& d) {
    d.summary("AdamW with averages of 8 bits");
    describe_betas(d);
    describe_eps(d).above(0);
    describe_weight_decay(d);
    d.key("min_8bit_size", &AdamW8bitSpec::min_8bit_size,
          "smaller tensors, and embeddings, keep their averages in fp32, or fp64 as the weights")
        .at_least(0)
        .unit("elements");
  }
};

constexpr int64_t kBlock = ops::kQuantizedBlock;

class Table {
 public:
  Table(bool is_signed, const at::TensorOptions& options) : is_signed_(is_signed) {
    const std::vector<double> values = ops::dynamic_tree(is_signed);
    std::vector<double> bounds;
    for (size_t i = 1; i < values.size(); ++i) bounds.push_back((values[i - 1] + values[i]) / 2);
    values_ = at::tensor(values, at::kDouble).to(options);
    bounds_ = at::tensor(bounds, at::kDouble).to(options);
  }

  /// Reads numbers [n] from codes [n] and the scales of their blocks.
  at::Tensor read(const at::Tensor& codes, const at::Tensor& scales) const {
    const at::Tensor of_each =
        scales.unsqueeze(1).expand({scales.size(0), kBlock}).reshape(-1).narrow(0, 0, codes.size(0));
    return values_.index_select(0, codes.to(at::kInt)).mul_(of_each);
  }

  /// Returns the codes [n] nearest to `numbers`, and the scales. A square above 0 stays above 0: as 0, it would let a
  /// first average that is left make a step of any length.
  std::pair<at::Tensor, at::Tensor> write(const at::Tensor& numbers) const {
    const int64_t size = numbers.size(0), rest = (kBlock - size % kBlock) % kBlock;
    const at::Tensor blocks = (rest == 0 ? numbers : at::constant_pad_nd(numbers, {0, rest})).view({-1, kBlock});
    const at::Tensor scales = blocks.abs().amax(1);
    const at::Tensor shares = blocks.div(at::where(scales.gt(0), scales, 1).unsqueeze(1));
    at::Tensor codes = at::bucketize(shares, bounds_, /*out_int32=*/true);
    if (!is_signed_) codes = codes.maximum(shares.gt(0).to(at::kInt));
    return {codes.to(at::kByte).view(-1).narrow(0, 0, size), scales};
  }

 private:
  bool is_signed_;
  at::Tensor values_, bounds_;
};

class AdamW8bit final : public Optimizer {
 public:
  static Abilities abilities() { return {.whole_tensors = true, .narrow_masters = true}; }

  AdamW8bit(const AdamW8bitSpec& spec, const device::Arena& arena)
      : spec_(spec),
        arena_(arena),
        step_(at::zeros({}, arena.options().dtype(at::kFloat))),
        first_table_(/*is_signed=*/true, arena.options().dtype(arena.state_type())),
        second_table_(/*is_signed=*/false, arena.options().dtype(arena.state_type())) {
    int64_t narrow = 0, blocks = 0, wide = 0;  // elements of the state, for one of the averages
    for (const OwnedTensor& tensor : owned_tensors(arena, spec.weight_decay)) {
      const int64_t numel = tensor.segment.numel;
      const bool is_narrow = numel >= spec.min_8bit_size && tensor.segment.role != device::Role::embedding;
      tensors_.push_back({.of = tensor, .is_narrow = is_narrow, .first = {}, .second = {}});
      (is_narrow ? narrow : wide) += numel;
      if (is_narrow) blocks += blocks_of(numel);
    }
    for (Average Tensor::*average : {&Tensor::first, &Tensor::second}) {
      const at::Tensor codes = arena.make_state(narrow, at::kByte),
                       scales = arena.make_state(blocks, arena.state_type()),
                       values = arena.make_state(wide, arena.state_type());
      int64_t code_at = 0, scale_at = 0, value_at = 0;
      for (Tensor& tensor : tensors_) {
        const int64_t numel = tensor.of.segment.numel, scale_count = tensor.is_narrow ? blocks_of(numel) : 0;
        int64_t& at = tensor.is_narrow ? code_at : value_at;
        (tensor.*average).numbers = (tensor.is_narrow ? codes : values).narrow(0, at, numel);
        if (tensor.is_narrow) (tensor.*average).scales = scales.narrow(0, scale_at, scale_count);
        at += numel;
        scale_at += scale_count;
      }
    }
  }

  void step(const StepScalars& scalars) override {
    const CountedStep counted(step_, scalars);
    const ops::UpdateScalars flat{scalars.lr, scalars.found_inf, scalars.divisor};
    if (!on_gpu_) on_gpu_.emplace(flat_tensors());
    const auto by_aten = [this](const ops::BlockwiseTensor& tensor, const ops::UpdateScalars& given) {
      update(tensor,
             GuardedStep({.lr = given.lr, .found_inf = given.found_inf, .divisor = given.divisor}, tensor.value),
             corrections_at(tensor.since));
    };
    const bool is_done =
        on_gpu_->adamw(step_, flat, {.beta1 = spec_.betas[0], .beta2 = spec_.betas[1], .eps = spec_.eps}, by_aten);
    if (!is_done) update_by_aten(scalars);
    note_update(arena_, is_done && copy_to_write(arena_).defined());
  }

  /// Returns the state with numbers in the order of the weight's elements, row by row, whatever its strides.
  State state() override {
    State state{.flat = {}, .scalars = {{"step", step_}}};
    for (const auto& [kind, average] :
         {std::pair("exp_avg", &Tensor::first), std::pair("exp_avg_sq", &Tensor::second)}) {
      OfWeights numbers{.kind = kind, .tensors = {}}, scales{.kind = std::string(kind) + "_scale", .tensors = {}};
      for (const Tensor& tensor : tensors_) {
        const device::Segment& segment = tensor.of.segment;
        numbers.tensors.emplace_back(segment.name, (tensor.*average).numbers.view(segment.sizes));
        if (tensor.is_narrow) scales.tensors.emplace_back(segment.name, (tensor.*average).scales);
      }
      state.of_weights.push_back(std::move(numbers));
      state.of_weights.push_back(std::move(scales));
    }
    add_counts(state, since_, step_);
    return state;
  }

  void count_since(const std::map<std::string, double>& since) override {
    since_ = since;
    on_gpu_.reset();
  }
  double updates() const override { return step_.item<double>(); }

  std::string describe() const override {
    return fmt::format("adamw8bit betas {} {} decay {}", spec_.betas[0], spec_.betas[1], spec_.weight_decay);
  }

 private:
  struct Average {
    at::Tensor numbers;  // [numel]: codes with scales, or values
    at::Tensor scales;   // [blocks]
  };
  struct Tensor {
    OwnedTensor of;
    bool is_narrow;
    Average first, second;
  };
  /// The factors that correct the averages for their begin at 0. 0-dim.
  struct Corrections {
    at::Tensor first, second_root;
  };

  static int64_t blocks_of(int64_t numel) { return (numel + kBlock - 1) / kBlock; }

  Corrections corrections_at(double since) const {
    const at::Tensor step = step_.to(at::kDouble) - since;
    return {.first = (1 - at::pow(spec_.betas[0], step)).reciprocal_().to(arena_.state_type()),
            .second_root = at::rsqrt(1 - at::pow(spec_.betas[1], step)).to(arena_.state_type())};
  }

  void update_by_aten(const StepScalars& scalars) const {
    const GuardedStep guarded(scalars, arena_.kept_values());
    std::map<double, Corrections> corrections;  // keys: number of updates that a tensor has missed
    for (const Tensor& tensor : tensors_) {
      const ops::BlockwiseTensor flat = flat_tensor(tensor);
      auto known = corrections.find(flat.since);
      if (known == corrections.end()) known = corrections.emplace(flat.since, corrections_at(flat.since)).first;
      update(flat, guarded, known->second);
      const at::Tensor& value = tensor.of.value;
      if (!flat.value.is_alias_of(value)) value.copy_(flat.value.view(value.sizes()));
    }
  }

  /// Returns a tensor whose values and gradients are views, or copies if they are not in the order of their elements.
  ops::BlockwiseTensor flat_tensor(const Tensor& tensor) const {
    const auto late = since_.find(tensor.of.segment.name);
    return {.value = tensor.of.value.reshape(-1),
            .gradient = tensor.of.gradient.reshape(-1),
            .first = tensor.first.numbers,
            .first_scales = tensor.first.scales,
            .second = tensor.second.numbers,
            .second_scales = tensor.second.scales,
            .weight_decay = tensor.of.weight_decay,
            .lr_factor = tensor.of.lr_factor,
            .since = late == since_.end() ? 0 : late->second,
            .key = rounding_key(arena_, tensor.of.segment.name)};
  }

  /// Returns all tensors for our kernel; none if values or gradients are not in the order of their elements.
  std::vector<ops::BlockwiseTensor> flat_tensors() const {
    const at::Tensor copy = copy_to_write(arena_), values = arena_.kept_values();
    std::vector<ops::BlockwiseTensor> all;
    for (const Tensor& tensor : tensors_) {
      if (!tensor.of.value.is_contiguous() || !tensor.of.gradient.is_contiguous()) return {};
      ops::BlockwiseTensor& flat = all.emplace_back(flat_tensor(tensor));
      if (copy.defined()) {
        const int64_t begin = flat.value.storage_offset() - values.storage_offset();
        flat.copy = copy.narrow(0, begin, flat.value.numel());
      }
    }
    return all;
  }

  void update(const ops::BlockwiseTensor& tensor, const GuardedStep& guarded, const Corrections& corrections) const {
    const at::Tensor &values = tensor.value, &gradients = tensor.gradient;
    const at::Tensor rate = guarded.rate(tensor.lr_factor),
                     decay = guarded.decay(tensor.lr_factor, tensor.weight_decay);
    const bool is_rounded = values.scalar_type() == at::kBFloat16;
    // Temporary values take little memory, and on a CPU stay in the cache.
    const int64_t most = values.is_cpu() ? int64_t{1} << 16 : int64_t{1} << 24;
    for (int64_t begin = 0; begin < values.size(0); begin += most) {
      const int64_t size = std::min(most, values.size(0) - begin);
      const at::Tensor kept = values.narrow(0, begin, size), value = is_rounded ? kept.to(at::kFloat) : kept;
      if (tensor.weight_decay != 0) value.mul_(decay);
      const at::Tensor gradient = guarded.gradient(gradients.narrow(0, begin, size));
      const Average first = part_of({tensor.first, tensor.first_scales}, begin, size),
                    second = part_of({tensor.second, tensor.second_scales}, begin, size);
      const at::Tensor mean = tensor.is_narrow() ? first_table_.read(first.numbers, first.scales) : first.numbers,
                       square = tensor.is_narrow() ? second_table_.read(second.numbers, second.scales) : second.numbers;
      mean.lerp_(gradient, guarded.share(1 - spec_.betas[0]));
      square.mul_(guarded.complement(1 - spec_.betas[1])).addcmul_(gradient, gradient, 1 - spec_.betas[1]);
      const at::Tensor root = square.sqrt().mul_(corrections.second_root).add_(spec_.eps);
      value.sub_(mean.mul(corrections.first).div_(root).mul_(rate));
      if (is_rounded) {
        const at::Tensor bits = ops::rounding_words({.key = tensor.key, .begin = begin}, size, step_,
                                                    ops::WordOrder::blocks, ops::RoundingUse::value);
        kept.copy_(ops::rounded_stochastically(value, bits));
      }
      if (!tensor.is_narrow()) continue;
      keep(first, first_table_.write(mean), guarded);
      keep(second, second_table_.write(square), guarded);
    }
  }

  /// Returns the elements from `begin`, a multiple of kBlock.
  static Average part_of(const Average& average, int64_t begin, int64_t size) {
    Average part{.numbers = average.numbers.narrow(0, begin, size), .scales = {}};
    if (average.scales.defined()) part.scales = average.scales.narrow(0, begin / kBlock, blocks_of(size));
    return part;
  }

  static void keep(const Average& average, const std::pair<at::Tensor, at::Tensor>& written,
                   const GuardedStep& guarded) {
    average.numbers.copy_(guarded.either(written.first, average.numbers));
    average.scales.copy_(guarded.either(written.second, average.scales));
  }

  AdamW8bitSpec spec_;
  const device::Arena& arena_;
  at::Tensor step_;
  Table first_table_, second_table_;
  std::vector<Tensor> tensors_;
  std::map<std::string, double> since_;
  std::optional<ops::BlockwiseUpdate> on_gpu_;  // none before the first step, or since count_since()
};

const config::Registered<AdamW8bit, AdamW8bitSpec> registered_adamw8bit{catalog(), "adamw8bit",
                                                                        "AdamW with averages of 8 bits"};

}  // namespace
}  // namespace gputrain::optim
