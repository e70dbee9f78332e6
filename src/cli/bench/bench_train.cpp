// Command `gputrain bench train`: measures a job's training step for each combination of settings, a row for each.
#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <optional>
#include <sstream>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "../commands.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/poll.hpp"
#include "gputrain/core/process.hpp"
#include "gputrain/inspect/bench.hpp"
#include "gputrain/job/job.hpp"
#include "gputrain/launch/child.hpp"
#include "gputrain/launch/environment.hpp"
#include "gputrain/monitor/format.hpp"
#include "gputrain/setup/compatibility.hpp"
#include "gputrain/setup/timed_steps.hpp"

namespace gputrain::app {
namespace {

/// Returns all combinations, in the order of the request's lists; precision is the outermost loop.
std::vector<BenchCombination> combinations_of(const BenchRequest& request) {
  const auto or_job = [](auto list, auto as_the_job_says) {
    if (list.empty()) list.push_back(as_the_job_says);
    return list;
  };
  std::vector<BenchCombination> all;
  for (const auto& precision : or_job(request.precision, std::string())) {
    for (const int64_t micro_batch : or_job(request.micro_batch, int64_t{0})) {
      for (const auto& checkpointing : or_job(request.checkpointing, std::string())) {
        for (const int64_t accumulation : or_job(request.accumulation, int64_t{1})) {
          all.push_back({precision, micro_batch, checkpointing, accumulation});
        }
      }
    }
  }
  return all;
}

/// End of a process, and its output.
struct Ended {
  std::string output, errors;
  launch::ProcessStatus status;
};

/// Reads the available bytes; returns false at the end.
bool read_some(int descriptor, std::string& text) {
  std::array<char, 4096> buffer{};
  const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
  if (count > 0) text.append(buffer.data(), static_cast<size_t>(count));
  return count > 0 || (count < 0 && errno == EINTR);
}

Ended run_to_its_end(std::vector<std::string> argv) {
  std::vector<std::string> environment;
  for (char** variable = environ; *variable != nullptr; ++variable) environment.emplace_back(*variable);
  launch::Child child({.argv = std::move(argv), .environment = std::move(environment)});
  const Descriptor output(child.take_output()), errors(child.take_errors());
  Ended ended;
  bool has_output = true, has_errors = true;
  while (has_output || has_errors) {
    Poll poll;
    if (has_output) poll.add(output.get());
    if (has_errors) poll.add(errors.get());
    poll.wait();
    if (has_output && poll.is_ready(output.get())) has_output = read_some(output.get(), ended.output);
    if (has_errors && poll.is_ready(errors.get())) has_errors = read_some(errors.get(), ended.errors);
  }
  std::optional<launch::ProcessStatus> status;
  while (!status || !status->is_end()) {
    Poll soon;
    soon.wake_at(Clock::now() + std::chrono::milliseconds(2));
    soon.wait();
    status = child.look();
  }
  ended.status = *status;
  return ended;
}

/// Returns the text after "error: " in its stderr, or the way in which the process ended.
std::string reason_of(const Ended& ended) {
  if (ended.status.kind == launch::ProcessStatus::Kind::killed) {
    const std::string by = "killed by " + launch::signal_text(ended.status.number);
    return ended.status.number == SIGKILL ? "probably out of memory: " + by : by;
  }
  const size_t begin = ended.errors.find("error: ");
  const std::string said = begin == std::string::npos ? "" : ended.errors.substr(begin + 7);
  return said.empty() ? "exit code " + std::to_string(ended.status.number) : said.substr(0, said.find('\n'));
}

/// Prints the warnings of the measured process: for example, a missing kernel or graph makes it slower.
void pass_on_warnings(const std::string& errors) {
  std::istringstream lines(errors);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("warning: ")) std::fprintf(stderr, "%s\n", line.c_str());
  }
}

/// Benchmark of all combinations, with the results so far.
class Bench {
 public:
  explicit Bench(const BenchRequest& request) : request_(request) {
    const Job job = load_job(request.job);
    if (job.spec().train.searches_micro_batch() && request.micro_batch.empty()) {
      throw job.loaded.error("train.micro_batch_size", "auto cannot be measured", "--micro-batch-size 8,16,32");
    }
    if (request.synthetic) data_ = synthetic_data(job);
    for (const auto& combination : combinations_of(request)) {
      JobRequest each = request.job;
      for (const auto& more : {data_, combination.settings()})
        each.set.insert(each.set.end(), more.begin(), more.end());
      const Job checked = load_job(each);  // throws before the first measurement
      check_compatibility(checked);
      rows_.push_back({.precision = checked.spec().precision,
                       .checkpointing = checked.spec().train.activation_checkpointing,
                       .micro_batch = combination.micro_batch,
                       .accumulation = combination.accumulation});
      sets_.push_back(std::move(each.set));
    }
  }

  int run() {
    for (int64_t round = 0; round < request_.rounds; ++round) {
      for (size_t i = 0; i < rows_.size(); ++i) {
        const size_t which = round % 2 == 0 ? i : rows_.size() - 1 - i;
        if (rows_[which].is_measured()) measure(which);
        if (round + 1 == request_.rounds && !request_.json) print(rows_[which]);
      }
    }
    if (request_.json) {
      print_json();
    } else {
      for (const auto& text : comparisons(rows_)) std::printf("%s\n", text.c_str());
    }
    const bool any = std::any_of(rows_.begin(), rows_.end(), [](const BenchRow& row) { return row.is_measured(); });
    return any ? 0 : exit_code_;
  }

 private:
  void measure(size_t which) {
    std::vector<std::string> argv{own_program(), "bench",
                                  "one",         request_.job.file,
                                  "--steps",     std::to_string(request_.steps),
                                  "--warmup",    std::to_string(request_.warmup)};
    for (const auto& set : sets_[which]) argv.insert(argv.end(), {"--set", set});
    const Ended ended = run_to_its_end(std::move(argv));
    pass_on_warnings(ended.errors);
    BenchRow& row = rows_[which];
    const auto json = parse_json(ended.output);
    if (!ended.status.went_well() || !json.is_object()) {
      row.failure = reason_of(ended);
      const bool is_killed = ended.status.kind == launch::ProcessStatus::Kind::killed;
      exit_code_ = is_killed ? static_cast<int>(ExitCode::environment) : ended.status.number;
      return;
    }
    BenchRow more = row_from_json(json);
    more.seconds.insert(more.seconds.end(), row.seconds.begin(), row.seconds.end());
    more.rates.insert(more.rates.end(), row.rates.begin(), row.rates.end());
    more.peak_bytes = std::max(more.peak_bytes, row.peak_bytes);
    row = std::move(more);
    machine_ = json.at("machine");
  }

  void print(const BenchRow& row) {
    if (!std::exchange(header_printed_, true)) {
      if (!machine_.is_null()) {
        std::printf("device  %s (%s)  %s\ndata    %s\n", machine_["device"].get<std::string>().c_str(),
                    monitor::bytes(machine_["memory_bytes"].get<double>()).c_str(),
                    machine_["torch"].get<std::string>().c_str(), machine_["data"].get<std::string>().c_str());
      }
      std::printf("%-9s %6s %-13s %12s %10s %15s %6s %6s %10s\n", "precision", "micro", "checkpointing", "accumulation",
                  "step", "rate", "+-", "mfu", "memory");
    }
    std::string text =
        fmt::format("{:<9} {:>6} {:<13} {:>12}", row.precision, row.micro_batch > 0 ? grouped(row.micro_batch) : "",
                    row.checkpointing, row.micro_batch > 0 ? grouped(row.accumulation) : "");
    if (row.is_measured()) {
      const std::string utilization = row.utilization() > 0 ? fmt::format("{:.1f} %", 100 * row.utilization()) : "";
      text +=
          fmt::format(" {:>10} {:>15} {:>6} {:>6} {:>10}", monitor::significant(1e3 * median(row.seconds)) + " ms",
                      monitor::compact(row.rate()) + " " + row.unit + "/s", fmt::format("{:.1f} %", 100 * row.spread()),
                      utilization, monitor::bytes(static_cast<double>(row.peak_bytes)));
    } else {
      text += " " + row.failure;
    }
    std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  }

  void print_json() const {
    auto rows = nlohmann::json::array();
    for (const BenchRow& row : rows_) rows.push_back(to_json(row));
    const nlohmann::json json{{"schema", 1},
                              {"machine", machine_},
                              {"steps", request_.steps},
                              {"warmup", request_.warmup},
                              {"rounds", request_.rounds},
                              {"rows", std::move(rows)},
                              {"comparisons", comparisons(rows_)}};
    std::printf("%s\n", json.dump(2).c_str());
  }

  const BenchRequest& request_;
  std::vector<std::string> data_;
  std::vector<BenchRow> rows_;
  std::vector<std::vector<std::string>> sets_;  // `--set` arguments of each row
  nlohmann::json machine_;
  int exit_code_ = static_cast<int>(ExitCode::environment);
  bool header_printed_ = false;
};

}  // namespace

int bench_train_command(const BenchRequest& request) {
  if (launch::read_environment().rendezvous.world_size > 1) {
    throw Error(ExitCode::usage, {.what = "bench train measures one rank, but a launcher has started several",
                                  .hint = "start it without a launcher"});
  }
  return Bench(request).run();
}

}  // namespace gputrain::app
