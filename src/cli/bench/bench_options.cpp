// Options of `gputrain bench`.
#include "../command_line/command_line.hpp"
#include "../command_line/options.hpp"
#include "../library.hpp"

namespace gputrain {

void CommandLine::add_bench() {
  auto* verb = app.add_subcommand("bench", "measure how fast this machine trains");
  verb->require_subcommand(1);
  const auto add_measuring = [this](CLI::App& command) {
    add_job(command, bench.job);
    command.add_option("--steps", bench.steps, "measured steps (default: 30)")->check(CLI::Range(1, 100000));
    command.add_option("--warmup", bench.warmup, "steps before them (default: 10)")->check(CLI::Range(0, 100000));
  };
  auto* train =
      verb->add_subcommand("train", "time steps of a job, by precision, micro-batch, checkpointing, accumulation");
  add_measuring(*train);
  train->add_option("--precision", bench.precision, "fp32,bf16: these instead of the job's")->delimiter(',');
  auto* micro = train->add_option("--micro-batch-size", bench.micro_batch, "8,16: these instead of the job's")
                    ->delimiter(',')
                    ->check(at_least(1));
  train->add_option("--activation-checkpointing", bench.checkpointing, "none,block: these instead of the job's")
      ->delimiter(',');
  train->add_option("--accumulation", bench.accumulation, "1,4: micro-batches in a step (default: 1)")
      ->delimiter(',')
      ->check(at_least(1))
      ->needs(micro);
  train
      ->add_option("--rounds", bench.rounds,
                   "rounds over all combinations, every second one in reverse order (default: 1)")
      ->check(CLI::Range(1, 100));
  train->add_flag("--synthetic", bench.synthetic, "synthetic data instead of the job's");
  train->add_flag("--json", bench.json, "print one JSON document");
  train->footer(
      "Each combination trains in a process of its own; no run folder is written.\n"
      "Exit code: 0 at least one was measured; 6 none fits into memory.");
  train->callback([this] { action = [this] { return app::library().bench_train(bench); }; });
  auto* one = verb->add_subcommand("one", "what `train` starts for each combination")->group("");
  add_measuring(*one);
  one->callback([this] { action = [this] { return app::library().bench_one(bench); }; });
  add_bench_comm(*verb);
  add_bench_data(*verb);
}

void CommandLine::add_bench_data(CLI::App& verb) {
  auto* data = verb.add_subcommand("data", "time reading a job's training data, stage by stage");
  add_job(*data, bench_data.job);
  data->add_option("--samples", bench_data.samples, "to be read by each measurement (default: 1000)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40));
  data->add_flag("--json", bench_data.json, "print one JSON document");
  data->callback([this] { action = [this] { return app::library().bench_data(bench_data); }; });
}

void CommandLine::add_bench_comm(CLI::App& verb) {
  auto* comm = verb.add_subcommand("comm", "time the collectives between ranks, and check their results");
  comm->add_option("job", bench_comm.job.file, "a job: its device, env and launch; default: none")->check(not_empty);
  add_set(*comm, bench_comm.job.set);
  comm->add_option("--collectives", bench_comm.collectives, "all_reduce,reduce,broadcast,all_gather (default: all)")
      ->delimiter(',')
      ->check(CLI::IsMember({"all_reduce", "reduce", "broadcast", "all_gather"}));
  const auto add_size = [&](const std::string& option, int64_t& size, const std::string& help) {
    comm->add_option(option, size, help)
        ->transform(CLI::AsSizeValue(false))
        ->check(CLI::Range(int64_t{4}, int64_t{1} << 40));
  };
  add_size("--min-bytes", bench_comm.min_bytes, "the smallest size (default: 8)");
  add_size("--max-bytes", bench_comm.max_bytes, "the largest size: 64M (default), 1G");
  comm->add_option("--factor", bench_comm.factor, "from one size to the next (default: 2)")
      ->check(CLI::Range(2, 1 << 20));
  comm->add_option("--iterations", bench_comm.iterations, "measured calls of each size (default: 20)")
      ->check(CLI::Range(1, 1 << 20));
  comm->add_option("--warmup", bench_comm.warmup, "calls before them (default: 5)")->check(CLI::Range(0, 1 << 20));
  comm->add_flag("--json", bench_comm.json, "print one JSON document");
  comm->footer(
      "Every rank runs it: gputrain launch --nproc-per-node 2 bench comm, or under\n"
      "torchrun, mpirun, srun. algbw is the result's size over the time; busbw what a\n"
      "link carries, to compare with its speed, as nccl-tests defines both: times\n"
      "2(n-1)/n for all_reduce, (n-1)/n for all_gather, 1 for broadcast and reduce.\n"
      "Exit code: 0 all results are right; 4 some are wrong.");
  comm->callback([this] { action = [this] { return app::library().bench_comm(bench_comm); }; });
}

}  // namespace gputrain
