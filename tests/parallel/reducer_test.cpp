// Reference: c10d::Reducer, the engine of PyTorch's DistributedDataParallel, over the same steps.
#include <cstdio>
#include <cstdlib>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <gtest/gtest.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "comm/rank_processes.hpp"
#include "gputrain/parallel/data_parallel.hpp"
#include "parallel/small_model.hpp"

namespace gputrain::parallel {
namespace {

using gputrain::testing::distance;
using gputrain::testing::join;
using gputrain::testing::RankBody;
using gputrain::testing::RankProcesses;
using gputrain::testing::rows;
using gputrain::testing::SmallModel;

/// A c10d process group, separate from ours.
c10::intrusive_ptr<c10d::ProcessGroup> reference_group(int rank, int world) {
  c10d::TCPStoreOptions store_options;
  store_options.port = static_cast<uint16_t>(std::atoi(std::getenv("REFERENCE_PORT")));
  store_options.isServer = rank == 0;
  const auto tcp = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", store_options);
  const c10::intrusive_ptr<c10d::Store> store = c10::make_intrusive<c10d::PrefixStore>("reference", tcp);
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(30));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, rank, world);
  group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::GLOO,
                    c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, world, options));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  return group;
}

std::shared_ptr<c10d::Reducer> make_reducer(const std::vector<at::Tensor>& parameters,
                                            const c10::intrusive_ptr<c10d::ProcessGroup>& group) {
  const std::vector<bool> sparse(parameters.size(), false);
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(parameters, {SIZE_MAX}, sparse);
  return std::make_shared<c10d::Reducer>(parameters, buckets, group, sparse, int64_t{2600},
                                         /*find_unused_parameters=*/false, /*gradient_as_bucket_view=*/false,
                                         std::unordered_map<size_t, std::string>{}, int64_t{600},
                                         /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false,
                                         std::vector<int64_t>{});
}

const RankBody beside_reducer("beside_reducer", [] {
  comm::ProcessGroups groups = join();
  const int64_t rank = groups.rank(), world = groups.world_size();
  constexpr int64_t kRowsEach = 6;
  SmallModel model, reference;
  DataParallel parallel(groups, model.arena, model.parameters, {.buckets = {.bytes = 2600, .first_bytes = 600}});
  const auto reducer = make_reducer(reference.parameters, reference_group(groups.rank(), groups.world_size()));
  const auto logger = std::make_shared<c10d::Logger>(reducer);
  reducer->set_logger(logger);
  for (int64_t step = 0; step < 10; ++step) {
    const auto data = rows(step, rank * kRowsEach, (rank + 1) * kRowsEach);
    parallel.prepare(true);
    (model.loss_sum(data.inputs, data.targets) / (kRowsEach * world)).backward();
    parallel.finish();

    reducer->prepare_for_forward();
    reducer->rebuild_buckets();
    const at::Tensor mean = reference.loss_sum(data.inputs, data.targets) / kRowsEach;  // the reducer divides by world
    reducer->prepare_for_backward({});
    mean.backward();
    const double difference = distance(model.arena.gradients(), reference.arena.gradients());
    if (!(difference < 1e-13)) {
      std::printf("step %ld: gradients differ by %g\n", static_cast<long>(step), difference);
      return 98;
    }
    for (SmallModel* one : {&model, &reference}) {
      one->descend(0.05);
      one->clear_gradients();
    }
  }
  groups.control().barrier("end");
  return 0;
});

TEST(DataParallel, MatchesGradientsOfPyTorchReducer) {
  RankProcesses ranks("beside_reducer", 2, {{"REFERENCE_PORT", std::to_string(gputrain::testing::free_port())}});
  for (const auto& result : ranks.finish()) EXPECT_EQ(result.exit_code, 0) << result.output;
}

}  // namespace
}  // namespace gputrain::parallel
