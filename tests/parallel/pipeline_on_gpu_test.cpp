// The stages of a pipeline with our kernels and NCCL: two ranks on one GPU, as in nccl_test.cpp, against one with the
// whole model. GPUTRAIN_TEST_DEVICE=cpu runs the same on a machine without a GPU.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/remainder.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/ops/chunked_cross_entropy.hpp"
#include "gputrain/ops/precision.hpp"
#include "gputrain/optim/optimizer.hpp"
#include "gputrain/parallel/pipeline.hpp"
#include "models/small_job.hpp"
#include "optim/optim_fixture.hpp"
#include "parallel/small_model.hpp"

namespace gputrain::parallel {
namespace {

using gputrain::testing::expect_success;
using gputrain::testing::fail;
using gputrain::testing::given;
using gputrain::testing::RankBody;

constexpr int64_t kVocabulary = 512, kTime = 64, kRows = 4;
constexpr const char* kLlama =
    "model: {type: gpt, config: {n_layer: 4, n_head: 4, n_kv_head: 2, n_embd: 128, block_size: 64, position: rotary, "
    "norm: rmsnorm, activation: swiglu, tie_embeddings: false}}\n";
constexpr const char* kGpt2 = "model: {type: gpt, config: {n_layer: 4, n_head: 4, n_embd: 128, block_size: 64}}\n";

bool is_on_gpu() {
  const char* of_test = std::getenv("GPUTRAIN_TEST_DEVICE");
  return of_test == nullptr || std::string(of_test) == "cuda";
}

/// A model that learns to repeat its tokens, one row at a time, alone or as a stage.
struct StagedLearner {
  at::Device device;
  std::unique_ptr<models::Model> model;
  std::vector<at::Tensor> weights;
  std::unique_ptr<device::Arena> arena;
  std::unique_ptr<Pipeline> pipeline;  // null: alone
  std::unique_ptr<DataParallel> parallel;
  std::unique_ptr<optim::Optimizer> optimizer;

  StagedLearner(comm::ProcessGroups& groups, at::Device on, const std::string& job) : device(on) {
    const comm::Mesh& mesh = groups.mesh();
    const ops::Policy policy = ops::policy_of(ops::Precision::bf16);
    model = models::build(models::load_job(job),
                          {.input_shape = {kTime}, .num_classes = kVocabulary, .vocabulary = kVocabulary},
                          {.policy = policy, .device = on, .takes_no_memory = !groups.alone()});
    const auto begins = cut_units(model->flops_of_units(), mesh.pipeline * mesh.virtual_stages);
    std::vector<device::ArenaTensor> tensors;
    int64_t number = 0;
    for (const models::Unit& unit : model->units()) {
      const bool is_here = stage_of_unit(number, begins, mesh.pipeline) == mesh.stage_of(groups.rank());
      for (nn::Module* module : unit.modules) {
        module->each_parameter([&](const std::string& name, nn::Parameter& one) {
          if (!is_here) return static_cast<void>(one.value.set_requires_grad(false));
          weights.push_back(one.value);
          tensors.push_back({.name = std::to_string(number) + name, .value = one.value, .unit = number});
        });
      }
      ++number;
    }
    arena = std::make_unique<device::Arena>(tensors, device::ArenaOptions{.working_type = ops::working_type(policy)});
    nn::initialize(*model, 3);
    if (!groups.alone()) pipeline = std::make_unique<Pipeline>(groups, *model, begins);
    parallel = std::make_unique<DataParallel>(groups, *arena, weights);
    optimizer = optim::optimizer_of("{type: adamw, weight_decay: 0.1}", *arena);
  }

  Batch row(int64_t index) const {
    const at::Tensor tokens =
        at::remainder(at::arange(index * kTime, (index + 1) * kTime, at::TensorOptions().dtype(at::kLong)) * 7919, 509)
            .view({1, kTime})
            .to(device);
    return {.fields = {{kTokens, tokens}, {kTarget, tokens}}, .samples = 1, .weight = kTime};
  }

  /// Takes a step with all rows. Returns the sum of their losses, which only the last stage knows.
  at::Tensor step() {
    at::Tensor sum = at::zeros({}, at::TensorOptions().dtype(at::kDouble).device(device));
    const at::Tensor share = at::full({}, 1.0 / (kRows * kTime), sum.options());
    const auto loss_of = [&](const Batch& batch) {
      const auto last = model->last_layer(batch);
      const ops::Loss loss = ops::chunked_cross_entropy(last.head, last.features, batch.tensor(kTarget),
                                                        {.classes = last.classes, .weight = share}, int64_t{1} << 30);
      sum.add_(loss.sum);
      return loss.weighted;
    };
    const device::Reading reading(arena->working_copy());
    arena->clear_gradients();
    if (pipeline) {
      pipeline->run({.micro_batches = kRows, .batch = [&](int64_t index) { return row(index); }, .loss = loss_of},
                    *parallel);
    } else {
      for (int64_t index = 0; index < kRows; ++index) loss_of(row(index)).backward();
    }
    const at::NoGradGuard no_grad;
    optimizer->step(
        {.lr =
             at::full({}, 2e-3, at::TensorOptions().dtype(device.is_cpu() ? at::kDouble : at::kFloat).device(device))});
    return sum;
  }
};

const RankBody stages_on_gpu("stages_on_gpu", [] {
  ::setenv("NCCL_HOSTID", std::getenv("RANK"), 1);
  const at::Device device = is_on_gpu() ? device::choose_device("cuda", 0) : at::Device(at::kCPU);
  comm::ProcessGroups groups = gputrain::testing::join(std::chrono::seconds(60), device), none;
  groups.arrange({.ranks = groups.world_size(),
                  .pipeline = groups.world_size(),
                  .virtual_stages = static_cast<int>(given("PARTS"))});
  StagedLearner stage(groups, device, std::getenv("MODEL")), whole(none, device, std::getenv("MODEL"));
  double first = 0, last = 0;
  for (int step = 0; step < 12; ++step) {
    const at::Tensor staged = stage.step();
    groups.tensors().all_reduce_sum(staged, "loss").wait();
    last = whole.step().item<double>();
    if (step == 0) first = last;
    const double apart = std::abs(staged.item<double>() - last) / last;
    std::printf("step %d: %.5f and %.5f\n", step, staged.item<double>(), last);
    if (!(apart < 0.02)) return fail("losses apart", apart);
  }
  if (!(last < 0.7 * first)) return fail("nothing learned", last / first);
  groups.control().barrier("end");
  return 0;
});

TEST(PipelineOnGpu, TrainsLikeTheWholeModel) {
  if (is_on_gpu() && device::gpu_count() == 0) GTEST_SKIP() << "there is no GPU here";
  for (const char* job : {kLlama, kGpt2}) {
    for (const char* parts : {"1", "2"}) expect_success("stages_on_gpu", 2, {{"MODEL", job}, {"PARTS", parts}});
  }
}

}  // namespace
}  // namespace gputrain::parallel
