// Command `gputrain bench comm`: times the collectives between the ranks of a job.
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/inspect/collective_bench.hpp"
#include "gputrain/job/job_environment.hpp"
#include "gputrain/job/job_start.hpp"
#include "gputrain/launch/environment.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {
namespace {

void refuse_one_rank() {
  if (launch::read_environment().rendezvous.world_size > 1) return;
  throw Error(ExitCode::usage, {.what = "bench comm measures what ranks send each other, and this is the only one",
                                .hint = "gputrain launch --nproc-per-node 2 bench comm; --hosts h1,h2 for the network "
                                        "between hosts"});
}

/// Table of rank 0; the other ranks print nothing.
class CommTable {
 public:
  CommTable(const BenchCommRequest& request, const RankContext& context) : request_(request), context_(context) {
    if (request_.json || !prints()) return;
    std::printf("ranks   %d on %s\nlinks   %s\ncalls   %s after %s, on the slowest rank; fp32\n",
                context.groups.world_size(), hosts().c_str(), context.groups.description().c_str(),
                grouped(request.iterations).c_str(), grouped(request.warmup).c_str());
  }

  void begin(const std::string& collective) const {
    if (request_.json || !prints()) return;
    std::printf("\n%s\n%14s %13s %12s %13s %13s %7s\n", collective.c_str(), "bytes", "elements", "time", "algbw",
                "busbw", "wrong");
  }

  void add(const CollectiveRow& row) {
    rows_.push_back({{"collective", row.collective},
                     {"bytes", row.bytes},
                     {"elements", row.elements()},
                     {"seconds", row.seconds},
                     {"algbw", row.algorithm_bandwidth()},
                     {"busbw", row.bus_bandwidth()},
                     {"wrong", row.wrong}});
    if (request_.json || !prints()) return;
    const auto rate = [](double bytes_per_second) { return monitor::significant(bytes_per_second / 1e9) + " GB/s"; };
    std::printf("%14s %13s %12s %13s %13s %7s\n", grouped(row.bytes).c_str(), grouped(row.elements()).c_str(),
                (monitor::significant(1e6 * row.seconds) + " us").c_str(), rate(row.algorithm_bandwidth()).c_str(),
                rate(row.bus_bandwidth()).c_str(), grouped(row.wrong).c_str());
    std::fflush(stdout);
  }

  void end() const {
    if (!request_.json || !prints()) return;
    const nlohmann::json report{{"schema", 1},
                                {"ranks", context_.groups.world_size()},
                                {"hosts", context_.groups.hosts()},
                                {"links", context_.groups.description()},
                                {"iterations", request_.iterations},
                                {"warmup", request_.warmup},
                                {"rows", rows_}};
    std::printf("%s\n", report.dump(2).c_str());
  }

 private:
  bool prints() const { return context_.rank() == 0; }

  /// Returns "h1:4, h2:4".
  std::string hosts() const {
    std::vector<std::pair<std::string, int>> counts;
    for (const std::string& host : context_.groups.hosts()) {
      if (counts.empty() || counts.back().first != host) counts.emplace_back(host, 0);
      ++counts.back().second;
    }
    std::string text;
    for (const auto& [host, ranks] : counts) text += (text.empty() ? "" : ", ") + host + ":" + std::to_string(ranks);
    return text;
  }

  const BenchCommRequest& request_;
  const RankContext& context_;
  nlohmann::json rows_ = nlohmann::json::array();
};

/// Measures all collectives. Returns whether every result was right.
bool measure_collectives(const BenchCommRequest& request, RankContext& context) {
  CommTable table(request, context);
  const auto& names = request.collectives.empty() ? collective_names() : request.collectives;
  int64_t wrong = 0;
  for (const std::string& name : names) {
    table.begin(name);
    for (const int64_t bytes : sizes_between(request.min_bytes, request.max_bytes, request.factor)) {
      const CollectiveRow row = time_collective(
          name, bytes, {.warmup = request.warmup, .iterations = request.iterations}, context.groups, context.device);
      wrong += row.wrong;
      table.add(row);
    }
  }
  table.end();
  return wrong == 0;
}

}  // namespace

int bench_comm_command(const BenchCommRequest& request) {
  constexpr std::chrono::minutes kDeadline{10};
  const auto loaded = config::load(config::schema_of<JobStart>(), reading_of(request.job));
  const auto& spec = loaded.as<JobStart>();
  take_environment(spec.env);
  refuse_one_rank();
  RankContext context = create_rank_context(spec, {.deadline = kDeadline, .purpose = "bench comm"});
  bool is_right = false;
  try {
    is_right = measure_collectives(request, context);
    context.groups.control().barrier("end");
    context.groups.leave();
  } catch (const std::exception& failure) {
    fail(context, failure);
  }
  if (is_right) return 0;
  const Error wrong(ExitCode::refused, {.what = "some collectives gave wrong numbers, see the column `wrong`",
                                        .hint = "another network interface or library of collectives: a run would "
                                                "train with wrong gradients"});
  if (context.rank() == 0) throw wrong;
  throw ReportedElsewhere(wrong);
}

}  // namespace gputrain::app
