// Command `gputrain bench data`: measures how fast a job's training data is read, stage by stage.
#include <cstdio>

#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/inspect/data_bench.hpp"
#include "gputrain/job/job_environment.hpp"
#include "gputrain/launch/environment.hpp"
#include "gputrain/monitor/format.hpp"

namespace gputrain::app {
namespace {

void print_data_rates(const DataRates& rates, const JobDatasets& datasets) {
  const auto line = [](const std::string& name, double rate) {
    std::printf("%-10s %9s samples/s\n", name.c_str(), monitor::compact(rate).c_str());
  };
  std::printf("data    %s\none thread, each stage alone\n", datasets.train->describe().c_str());
  for (const DataStage& stage : rates.stages) line("  " + stage.name, stage.samples_per_second);
  line("  all", rates.one_thread);
  std::printf("%s\n", rates.workers == 0 ? "no workers: the loop reads by itself"
                                         : (counted(rates.workers, "worker") + " together").c_str());
  line("  loader", rates.loader);
  line("  to device", rates.preprocess);
  std::printf("limit   %s\n", data_advice(rates).c_str());
}

}  // namespace

int bench_data_command(const BenchDataRequest& request) {
  const Job job = load_job(request.job);
  if (job.spec().train.searches_micro_batch())
    throw job.loaded.error("train.micro_batch_size", "auto is not known yet", "--set train.micro_batch_size=16");
  take_environment(job.spec().env);
  if (launch::read_environment().rendezvous.world_size > 1) {
    throw Error(ExitCode::usage, {.what = "bench data measures one rank, but a launcher has started several",
                                  .hint = "start it without a launcher"});
  }
  const RankContext context = create_rank_context(job);
  const JobDatasets datasets = open_datasets(job);
  const DataRates rates = time_data(job, datasets, context, request.samples);
  if (!request.json) {
    print_data_rates(rates, datasets);
    return 0;
  }
  auto stages = nlohmann::json::array();
  for (const DataStage& stage : rates.stages)
    stages.push_back({{"stage", stage.name}, {"samples_per_second", stage.samples_per_second}});
  const nlohmann::json report{{"schema", 1},
                              {"data", datasets.train->describe()},
                              {"stages", std::move(stages)},
                              {"one_thread", rates.one_thread},
                              {"workers", rates.workers},
                              {"loader", rates.loader},
                              {"to_device", rates.preprocess},
                              {"limit", data_advice(rates)}};
  std::printf("%s\n", report.dump(2).c_str());
  return 0;
}

}  // namespace gputrain::app
