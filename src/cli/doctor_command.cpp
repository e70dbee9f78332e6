// `gputrain doctor`: whether this machine, or several hosts, can train well.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <system_error>

#include <nlohmann/json.hpp>

#include "gputrain/comm/nccl_name.hpp"
#include "gputrain/comm/simulated_ranks.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/device/cuda_software.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/doctor/checks.hpp"
#include "gputrain/doctor/hosts.hpp"
#include "gputrain/doctor/page.hpp"
#include "gputrain/inspect/machine_bench.hpp"
#include "gputrain/job/commands.hpp"
#include "gputrain/job/job_environment.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/resume/checkpoint_room.hpp"
#include "gputrain/setup/versions.hpp"

namespace gputrain::app {
namespace {

doctor::Software software_here() {
  const device::CudaSoftware cuda = device::cuda_software();
  const std::string nccl = comm::nccl_name();
  return {.gputrain = version(),
          .torch = torch_version().substr(torch_version().find(' ') + 1),
          .cuda = cuda.version,
          .cudnn = cuda.cudnn,
          .nccl = nccl.substr(std::min(nccl.size(), nccl.find(' ') + 1)),
          .gpu_obstacle = device::gpu_obstacle(),
          .usable_gpus = device::gpu_count()};
}

/// Bytes per second, by a file of 64 MiB; 0 where it cannot be written.
double write_speed_of(const std::filesystem::path& folder) {
  try {
    return time_disk(folder, int64_t{64} << 20).write;
  } catch (const Error&) {
    return 0;
  }
}

/// Builds the job's model, to know how large its checkpoints are.
doctor::PlannedCheckpoints planned_by(const std::string& file) {
  const Job job = load_job({.file = file, .set = {}, .output_dir = {}});
  take_environment(job.spec().env);
  const auto traffic = std::make_shared<comm::CollectiveTraffic>();
  const JobDatasets datasets = open_datasets(job);
  TrainingSetup setup(job, simulate_rank(job.spec(), {}, traffic), [&] { return datasets; });
  doctor::PlannedCheckpoints planned{.folder = existing_part_of(job.output_dir).string(),
                                     .bytes = checkpoint_bytes(setup)};
  for (const DiskShortage& shortage : disks_too_small(job, setup)) {
    planned.shortages.push_back(shortage.error.parts().what);
    planned.none_fits = planned.none_fits || shortage.for_one;
  }
  if (!planned.none_fits) planned.write_bytes_per_second = write_speed_of(planned.folder);
  return planned;
}

nlohmann::json to_json(const doctor::Machine& machine, const doctor::Findings& findings) {
  return {{"schema", 1},
          {"fit", doctor::is_fit(findings)},
          {"address", machine.address},
          {"findings", doctor::to_json(findings)}};
}

std::string bold(const std::string& text, bool colour) { return colour ? "\x1b[1m" + text + "\x1b[0m" : text; }

/// What is wrong on a host, and the names of the checks that are fine.
doctor::Findings summary_of(const doctor::HostReport& report) {
  if (!report.problem.empty())
    return {{.check = "", .verdict = doctor::Verdict::bad, .text = "cannot be examined: " + report.problem}};
  doctor::Findings findings;
  std::string fine;
  for (const doctor::Finding& finding : report.findings) {
    if (finding.verdict != doctor::Verdict::ok) findings.push_back(finding);
    if (finding.verdict == doctor::Verdict::ok) fine += (fine.empty() ? "" : ", ") + finding.check;
  }
  if (!fine.empty()) findings.insert(findings.begin(), {.check = "", .text = fine});
  return findings;
}

void print_hosts(const doctor::ExaminedHosts& hosts) {
  const size_t columns = monitor::terminal_width();
  const bool colour = monitor::Console::detect(true).colour;
  const auto print = [&](const std::string& heading, const doctor::Findings& findings) {
    std::printf("%s\n%s", bold(printable(heading), colour).c_str(), doctor::page(findings, columns, colour).c_str());
  };
  for (const doctor::HostReport& report : hosts.reports) print(report.host, summary_of(report));
  print("between hosts", hosts.between.empty()
                             ? doctor::Findings{{.check = "", .text = "nothing differs; clocks agree, ports are open"}}
                             : hosts.between);
}

nlohmann::json to_json(const doctor::ExaminedHosts& hosts, bool is_fit) {
  auto reports = nlohmann::json::array();
  for (const doctor::HostReport& report : hosts.reports) {
    reports.push_back({{"host", report.host},
                       {"problem", report.problem},
                       {"address", report.address},
                       {"fit", report.problem.empty() && doctor::is_fit(report.findings)},
                       {"findings", doctor::to_json(report.findings)}});
  }
  return {{"schema", 1}, {"fit", is_fit}, {"hosts", reports}, {"between", doctor::to_json(hosts.between)}};
}

std::vector<launch::Host> hosts_of(const DoctorRequest& request) {
  std::vector<launch::Host> hosts;
  for (const std::string& text : request.hosts) {
    std::string problem;
    const auto host = launch::read_host(text, problem);
    if (!host) throw Error(ExitCode::usage, {.what = "--hosts: " + problem, .where = text});
    hosts.push_back(*host);
  }
  return hosts;
}

int examine_hosts(const DoctorRequest& request) {
  std::vector<std::string> arguments{"doctor", "--serve"};
  if (!request.job.empty())
    arguments.insert(arguments.end(), {"--folder", std::filesystem::current_path().string(), request.job});
  const doctor::ExaminedHosts hosts = doctor::examine(hosts_of(request), arguments);
  doctor::Findings all;
  for (const doctor::HostReport& report : hosts.reports) {
    const doctor::Findings findings = report.problem.empty() ? report.findings : summary_of(report);
    all.insert(all.end(), findings.begin(), findings.end());
  }
  all.insert(all.end(), hosts.between.begin(), hosts.between.end());
  const bool is_fit = doctor::is_fit(all);
  if (request.json) {
    std::printf("%s\n", to_json(hosts, is_fit).dump(2).c_str());
  } else {
    print_hosts(hosts);
    std::printf("%s\n", doctor::summary_line(all, false).c_str());
  }
  return is_fit ? 0 : static_cast<int>(ExitCode::environment);
}

/// Where the launcher is, if that folder is here; a job's path may be relative to it.
void go_to(const std::string& folder, bool has_job) {
  std::error_code failure;
  std::filesystem::current_path(folder, failure);
  if (failure && has_job)
    throw Error(ExitCode::environment,
                {.what = "the folder is not on this host: " + failure.message(), .where = folder});
}

}  // namespace

int doctor_command(const DoctorRequest& request) {
  if (!request.hosts.empty()) return examine_hosts(request);
  if (request.serves) go_to(request.folder, !request.job.empty());
  doctor::Machine machine = doctor::look_at_this_machine(software_here());
  if (!request.job.empty()) machine.planned = planned_by(request.job);
  const doctor::Findings findings = doctor::check_all(machine);
  if (request.serves) {
    doctor::serve(to_json(machine, findings).dump());
    return 0;
  }
  const int code = doctor::is_fit(findings) ? 0 : static_cast<int>(ExitCode::environment);
  if (request.json) {
    std::printf("%s\n", to_json(machine, findings).dump(2).c_str());
    return code;
  }
  const bool colour = monitor::Console::detect(true).colour;
  std::printf("%s", doctor::page(findings, monitor::terminal_width(), colour).c_str());
  std::printf("%s\n", doctor::summary_line(findings, machine.software.usable_gpus == 0).c_str());
  return code;
}

}  // namespace gputrain::app
