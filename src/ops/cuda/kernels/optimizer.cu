// AdamW (Loshchilov and Hutter, "Decoupled weight decay regularization", ICLR 2019) and SGD with momentum (Nesterov's:
// Sutskever et al., ICML 2013), in torch.optim's arithmetic, for all stretches of an arena in one launch. bf16 is
// rounded stochastically (Gupta et al., ICML 2015).
//
// Registers: adamw_kernel 80, sgd_kernel 64
#include "optimizer.hpp"

#include <cmath>

#include "device.cuh"

namespace gputrain::ops::cuda {
namespace {

constexpr int kThreads = 256, kPacks = 2, kVector = 4;
constexpr int64_t kBlockElements = int64_t{kThreads} * kPacks * kVector;

__device__ inline bool is_skipped(const Update& p) { return p.found_inf != nullptr && *p.found_inf != 0; }

/// A thread's elements: kPacks packs that begin at place(i) of the state, if that is below end.
struct Share {
  int64_t begin, end, values_shift, gradients_shift, element_shift;
  uint64_t key;
  float decay, lr_factor, since;

  __device__ explicit Share(const Update& p) {
    const Stretch& stretch = part_of_block(p.stretches, p.count, block_x());
    begin = stretch.begin + (block_x() - stretch.first_block) * kBlockElements + thread_x() * kVector;
    end = stretch.end;
    values_shift = stretch.values_shift;
    gradients_shift = stretch.gradients_shift;
    element_shift = stretch.element - stretch.begin;
    key = stretch.key;
    decay = stretch.decay;
    lr_factor = stretch.lr_factor;
    since = stretch.since;
  }
  __device__ int64_t place(int pack) const { return begin + pack * kThreads * kVector; }
  __device__ RandomBits bits(int pack, float step, RoundingUse use) const {
    return rounding_bits(key, (element_shift + place(pack)) / kVector, step, use);
  }
};

using Values = float[kPacks][kVector];

template <class T>
__device__ void load_share(const T* from, const Share& share, Values& to) {
  GPUTRAIN_UNROLL
  for (int pack = 0; pack < kPacks; ++pack) {
    if (share.place(pack) < share.end) load(from + share.place(pack), to[pack]);
  }
}

template <class T>
__device__ void store_share(T* to, const Share& share, const Values& from) {
  GPUTRAIN_UNROLL
  for (int pack = 0; pack < kPacks; ++pack) {
    if (share.place(pack) < share.end) store(to + share.place(pack), from[pack]);
  }
}

/// Rounds to bf16 by bits from `shift` on of each random word.
__device__ inline void round_share(const Share& share, float step, RoundingUse use, int shift, Values& values) {
  GPUTRAIN_UNROLL
  for (int pack = 0; pack < kPacks; ++pack) {
    const RandomBits bits = share.bits(pack, step, use);
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) values[pack][k] = rounded_stochastically(values[pack][k], bits.word[k] >> shift);
  }
}

__device__ inline void store_working(const Update& p, const Share& share, const Values& from) {
  if (p.working == nullptr) return;
  GPUTRAIN_UNROLL
  for (int pack = 0; pack < kPacks; ++pack) {
    if (share.place(pack) >= share.end) continue;
    if (p.working_element == Element::bf16) {
      store(static_cast<Bf16*>(p.working) + share.values_shift + share.place(pack), from[pack]);
    } else {
      store(static_cast<Fp16*>(p.working) + share.values_shift + share.place(pack), from[pack]);
    }
  }
}

struct AdamWRates {
  float log_beta1, log_beta2, one_less_beta1, one_less_beta2;  // 1 - beta is computed in double
};

template <class T, class Averaged>
__global__ void __launch_bounds__(kThreads) adamw_kernel(AdamWUpdate p, AdamWRates rates) {
  if (is_skipped(p.common)) return;
  const Share share(p.common);
  T* const values = static_cast<T*>(p.common.values) + share.values_shift;
  Averaged *const firsts = static_cast<Averaged*>(p.first), *const seconds = static_cast<Averaged*>(p.second);
  Values value, gradient, first, second;
  load_share(values, share, value);
  load_share(static_cast<const T*>(p.common.gradients) + share.gradients_shift, share, gradient);
  load_share(firsts, share, first);
  load_share(seconds, share, second);
  const float lr = *p.common.lr * share.lr_factor, divisor = p.common.divisor != nullptr ? *p.common.divisor : 1.0F;
  const float step = *p.step - share.since;
  // 1 - beta^step: by expm1, because beta^step is almost 1 in the first steps.
  const float step_size = lr / -expm1f(step * rates.log_beta1);
  const float second_root = sqrtf(-expm1f(step * rates.log_beta2));
  const float beta2 = static_cast<float>(p.beta2);
  GPUTRAIN_UNROLL
  for (int pack = 0; pack < kPacks; ++pack) {
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) {
      const float g = gradient[pack][k] / divisor;
      float& v = value[pack][k];
      v -= lr * share.decay * v;
      first[pack][k] += (g - first[pack][k]) * rates.one_less_beta1;
      second[pack][k] = beta2 * second[pack][k] + rates.one_less_beta2 * g * g;
      v -= step_size * first[pack][k] / (sqrtf(second[pack][k]) / second_root + p.eps);
    }
  }
  if constexpr (kPackOf<T> != kPackOf<float>) round_share(share, *p.step, RoundingUse::value, 0, value);
  if constexpr (kPackOf<Averaged> != kPackOf<float>) {
    round_share(share, *p.step, RoundingUse::averages, 0, first);
    round_share(share, *p.step, RoundingUse::averages, 16, second);
  }
  store_share(values, share, value);
  store_share(firsts, share, first);
  store_share(seconds, share, second);
  store_working(p.common, share, value);
}

__global__ void __launch_bounds__(kThreads) sgd_kernel(SgdUpdate p) {
  if (is_skipped(p.common)) return;
  const Share share(p.common);
  Values value, gradient, velocity = {};
  float* const values = static_cast<float*>(p.common.values) + share.values_shift;
  load_share(values, share, value);
  load_share(static_cast<const float*>(p.common.gradients) + share.gradients_shift, share, gradient);
  if (p.velocity != nullptr) load_share(p.velocity, share, velocity);
  const float lr = *p.common.lr * share.lr_factor, divisor = p.common.divisor != nullptr ? *p.common.divisor : 1.0F;
  GPUTRAIN_UNROLL
  for (int pack = 0; pack < kPacks; ++pack) {
    GPUTRAIN_UNROLL
    for (int k = 0; k < kVector; ++k) {
      float& v = value[pack][k];
      const float g = gradient[pack][k] / divisor + share.decay * v;
      velocity[pack][k] = p.momentum * velocity[pack][k] + g;
      v -= lr * (p.nesterov ? g + p.momentum * velocity[pack][k] : velocity[pack][k]);
    }
  }
  store_share(values, share, value);
  if (p.velocity != nullptr) store_share(p.velocity, share, velocity);
  store_working(p.common, share, value);
}

}  // namespace

int64_t blocks_of(int64_t elements) { return divided_up(elements, kBlockElements); }

void adamw(const AdamWUpdate& p, Stream stream) {
  const AdamWRates rates{.log_beta1 = static_cast<float>(std::log(p.beta1)),
                         .log_beta2 = static_cast<float>(std::log(p.beta2)),
                         .one_less_beta1 = static_cast<float>(1 - p.beta1),
                         .one_less_beta2 = static_cast<float>(1 - p.beta2)};
  const bool narrow = p.common.element == Element::bf16, narrow_averages = p.averages == Element::bf16;
  const auto kernel = narrow ? (narrow_averages ? adamw_kernel<Bf16, Bf16> : adamw_kernel<Bf16, float>)
                             : (narrow_averages ? adamw_kernel<float, Bf16> : adamw_kernel<float, float>);
  launch(kernel, dim3{extent(p.common.blocks), 1, 1}, dim3{kThreads, 1, 1}, stream, p, rates);
}

void sgd(const SgdUpdate& p, Stream stream) {
  launch(sgd_kernel, dim3{extent(p.common.blocks), 1, 1}, dim3{kThreads, 1, 1}, stream, p);
}

}  // namespace gputrain::ops::cuda
