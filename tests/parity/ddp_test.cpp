// Step-by-step comparison with PyTorch's DistributedDataParallel in Python.
#include <filesystem>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "comm/rank_processes.hpp"
#include "gputrain/checkpoint/safetensors.hpp"
#include "gputrain/parallel/data_parallel.hpp"
#include "optim/optim_fixture.hpp"
#include "parallel/small_model.hpp"

namespace gputrain::parallel {
namespace {

using gputrain::testing::expect_success;
using gputrain::testing::join;
using gputrain::testing::RankBody;
using gputrain::testing::rows;
using gputrain::testing::SmallModel;

constexpr int64_t kRowsEach = 6;

/// Trains 20 steps; rank 0 records the initial weights, the data and every step's gradients.
const RankBody writes_its_steps("writes_its_steps", [] {
  comm::ProcessGroups groups = join();
  const int64_t rank = groups.rank(), world = groups.world_size();
  SmallModel model;
  checkpoint::NamedTensors written;
  const auto write = [&](const std::string& name, const at::Tensor& tensor) {
    written.emplace_back(name, tensor.detach().clone());
  };
  for (size_t i = 0; i < model.parameters.size(); ++i) write("weight." + std::to_string(i), model.parameters[i]);
  DataParallel parallel(groups, model.arena, model.parameters, {.buckets = {.bytes = 2600, .first_bytes = 600}});
  const auto optimizer = optim::optimizer_of("{type: adamw, weight_decay: 0.1}", model.arena);
  for (int64_t step = 0; step < 20; ++step) {
    const auto data = rows(step, rank * kRowsEach, (rank + 1) * kRowsEach), all = rows(step, 0, world * kRowsEach);
    write("inputs." + std::to_string(step), all.inputs);
    write("targets." + std::to_string(step), all.targets);
    model.clear_gradients();
    parallel.prepare(true);
    (model.loss_sum(data.inputs, data.targets) / (kRowsEach * world)).backward();
    parallel.finish();
    for (size_t i = 0; i < model.parameters.size(); ++i) {
      write("gradient." + std::to_string(step) + "." + std::to_string(i), model.parameters[i].grad());
    }
    const at::NoGradGuard no_grad;
    optimizer->step({.lr = at::full({}, 0.02, at::kDouble), .found_inf = {}, .divisor = {}});
  }
  for (size_t i = 0; i < model.parameters.size(); ++i) write("end." + std::to_string(i), model.parameters[i]);
  if (rank == 0) checkpoint::write_safetensors(std::getenv("WRITTEN"), written);
  groups.control().barrier("end");
  return 0;
});

TEST(PythonParity, MatchesDistributedDataParallel) {
  GPUTRAIN_NEED_REFERENCE("torch.distributed");
  GPUTRAIN_NEED_REFERENCE("safetensors");
  const std::string file = std::filesystem::temp_directory_path() / ("gputrain_ddp_" + std::to_string(::getpid()));
  expect_success("writes_its_steps", 2, {{"WRITTEN", file}});
  EXPECT_TRUE(gputrain::testing::run_reference("parity/ddp_reference.py", {file, "2"}));
  std::filesystem::remove(file);
}

}  // namespace
}  // namespace gputrain::parallel
