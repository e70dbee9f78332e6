// Sharded parameters of a Llama with our kernels: two ranks on one GPU, as in nccl_test.cpp, against whole weights.
// GPUTRAIN_TEST_DEVICE=cpu runs the same on a machine without a GPU.
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/remainder.h>
#include <gtest/gtest.h>

#include "comm/rank_processes.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/nn/unit_memory.hpp"
#include "gputrain/ops/chunked_cross_entropy.hpp"
#include "gputrain/ops/context_attention.hpp"
#include "gputrain/ops/precision.hpp"
#include "gputrain/optim/optimizer.hpp"
#include "gputrain/parallel/data_parallel.hpp"
#include "gputrain/parallel/sharded_parameters.hpp"
#include "models/small_job.hpp"
#include "optim/optim_fixture.hpp"
#include "parallel/small_model.hpp"

namespace gputrain::parallel {
namespace {

using gputrain::testing::expect_success;
using gputrain::testing::fail;
using gputrain::testing::RankBody;

constexpr int64_t kVocabulary = 512, kTime = 64, kRows = 4;
constexpr const char* kLlama =
    "model: {type: gpt, config: {n_layer: 3, n_head: 4, n_kv_head: 2, n_embd: 128, block_size: 64, position: rotary, "
    "norm: rmsnorm, activation: swiglu, tie_embeddings: false}}\n";
constexpr const char* kGpt2 = "model: {type: gpt, config: {n_layer: 3, n_head: 4, n_embd: 128, block_size: 64}}\n";

bool is_on_gpu() {
  const char* given = std::getenv("GPUTRAIN_TEST_DEVICE");
  return given == nullptr || std::string(given) == "cuda";
}

/// A model that learns to repeat its tokens, alone or as one of several ranks.
struct Learner {
  std::unique_ptr<models::Model> model;
  std::vector<at::Tensor> weights;
  std::unique_ptr<device::Arena> arena;
  std::vector<device::Shard> owners;
  std::unique_ptr<ShardedParameters> sharded;
  std::unique_ptr<DataParallel> parallel;
  std::unique_ptr<optim::Optimizer> optimizer;
  at::Device device;
  comm::Group* context;  // that shares the texts

  Learner(comm::ProcessGroups& groups, at::Device on, const std::string& job)
      : device(on), context(groups.context().size() > 1 ? &groups.context() : nullptr) {
    const ops::Policy policy = ops::policy_of(ops::Precision::bf16);
    const bool is_alone = groups.alone();
    model = models::build(models::load_job(job),
                          {.input_shape = {kTime}, .num_classes = kVocabulary, .vocabulary = kVocabulary},
                          {.policy = policy, .device = on, .takes_no_memory = !is_alone, .context_group = context});
    std::vector<device::ArenaTensor> tensors;
    int64_t number = 0;
    for (const models::Unit& unit : model->units()) {
      for (nn::Module* module : unit.modules) {
        module->each_parameter([&](const std::string& name, nn::Parameter& one) {
          weights.push_back(one.value);
          tensors.push_back(
              {.name = std::to_string(number) + name,
               .value = one.value,
               .unit = number,
               .read_in_master = one.read_as == nn::ReadAs::master || one.role == nn::ParameterRole::embedding});
        });
      }
      ++number;
    }
    const device::Kept kept = is_alone ? device::Kept::whole : device::Kept::owned;
    arena = std::make_unique<device::Arena>(tensors, device::ArenaOptions{.gradients = kept,
                                                                          .values = kept,
                                                                          .working_type = ops::working_type(policy),
                                                                          .shards = groups.mesh().shards()});
    if (is_alone) {
      nn::initialize(*model, 3);
    } else {
      owners = equal_shards(*arena, groups.mesh().shards());
      arena->own(owners[static_cast<size_t>(groups.mesh().shard_of(groups.rank()))]);
      sharded = std::make_unique<ShardedParameters>(groups, *arena, *model);
      sharded->fill([&] { nn::initialize(*model, 3); });
    }
    parallel = std::make_unique<DataParallel>(groups, *arena, weights,
                                              ReducerOptions{.owners = owners, .parameters = sharded.get()});
    optimizer = optim::optimizer_of("{type: adamw, weight_decay: 0.1}", *arena);
  }

  /// Takes a step with the rows [begin, end) of all; returns the loss of these.
  double step(int64_t begin, int64_t end) {
    const at::Tensor all = at::remainder(at::arange(kRows * kTime, at::TensorOptions().dtype(at::kLong)) * 7919, 509)
                               .view({kRows, kTime})
                               .to(device);
    at::Tensor tokens = all.narrow(0, begin, end - begin);
    if (context != nullptr) tokens = ops::text_part(tokens, *context, 0);
    Batch batch{.fields = {{kTokens, tokens}, {kTarget, tokens}}, .samples = end - begin};
    batch.weight = (end - begin) * kTime;
    if (context != nullptr) {
      const at::Tensor places = at::arange(kTime, tokens.options()).unsqueeze(0);
      batch.fields.push_back({kPositions, ops::text_part(places, *context, 0)});
      batch.is_part_of_texts = true;
    }
    const at::Tensor share = at::full({}, 1.0 / (kRows * kTime), at::TensorOptions().dtype(at::kDouble).device(device));
    const device::Reading reading(arena->working_copy());
    arena->clear_gradients();
    parallel->prepare(true);
    const auto last = model->last_layer(batch);
    const ops::Loss loss = ops::chunked_cross_entropy(last.head, last.features, tokens,
                                                      {.classes = last.classes, .weight = share}, int64_t{1} << 30);
    loss.weighted.backward();
    parallel->finish();
    const at::NoGradGuard no_grad;
    optimizer->step(
        {.lr =
             at::full({}, 2e-3, at::TensorOptions().dtype(device.is_cpu() ? at::kDouble : at::kFloat).device(device))});
    parallel->all_gather_values();
    return loss.sum.item<double>();
  }
};

const RankBody learns_on_gpu("learns_on_gpu", [] {
  ::setenv("NCCL_HOSTID", std::getenv("RANK"), 1);
  const at::Device device = is_on_gpu() ? device::choose_device("cuda", 0) : at::Device(at::kCPU);
  comm::ProcessGroups groups = gputrain::testing::join(std::chrono::seconds(60), device), none;
  const comm::Mesh mesh{.ranks = groups.world_size(),
                        .replicas = static_cast<int>(gputrain::testing::given("REPLICAS")),
                        .context = static_cast<int>(gputrain::testing::given("CONTEXT"))};
  groups.arrange(mesh);
  Learner sharded(groups, device, std::getenv("MODEL")), whole(none, device, std::getenv("MODEL"));
  const int64_t share = kRows / mesh.samples(), begin = share * mesh.sample_group_of(groups.rank());
  double first = 0, last = 0;
  for (int step = 0; step < 12; ++step) {
    const at::Tensor own = at::full({}, sharded.step(begin, begin + share), at::kDouble);
    groups.control().all_reduce_sum(own, "loss").wait();
    last = whole.step(0, kRows);
    if (step == 0) first = last;
    const double apart = std::abs(own.item<double>() - last) / last;
    std::printf("step %d: %.5f and %.5f\n", step, own.item<double>(), last);
    if (!(apart < 0.02)) return fail("losses apart", apart);
  }
  if (!(last < 0.7 * first)) return fail("nothing learned", last / first);
  groups.control().barrier("end");
  return 0;
});

TEST(ShardedParametersOnGpu, TrainLikeWholeOnes) {
  if (is_on_gpu() && device::gpu_count() == 0) GTEST_SKIP() << "there is no GPU here";
  for (const char* job : {kLlama, kGpt2})
    expect_success("learns_on_gpu", 2, {{"MODEL", job}, {"REPLICAS", "1"}, {"CONTEXT", "1"}});
}

TEST(ShardedParametersOnGpu, TrainLikeWholeOnesOnAMesh) {
  if (is_on_gpu() && device::gpu_count() == 0) GTEST_SKIP() << "there is no GPU here";
  expect_success("learns_on_gpu", 2, {{"MODEL", kLlama}, {"REPLICAS", "1"}, {"CONTEXT", "2"}});
  expect_success("learns_on_gpu", 4, {{"MODEL", kLlama}, {"REPLICAS", "2"}, {"CONTEXT", "2"}});
}

}  // namespace
}  // namespace gputrain::parallel
