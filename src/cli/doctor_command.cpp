// Command `gputrain doctor`: tells whether this machine, or several hosts, can train well.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>
#include <utility>

#include <nlohmann/json.hpp>

#include "commands.hpp"
#include "gputrain/comm/nccl_name.hpp"
#include "gputrain/comm/simulated_ranks.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/device/cuda_software.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/doctor/checks.hpp"
#include "gputrain/doctor/hosts.hpp"
#include "gputrain/doctor/page.hpp"
#include "gputrain/doctor/rates.hpp"
#include "gputrain/job/job_environment.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/monitor/console.hpp"
#include "gputrain/resume/checkpoint_room.hpp"
#include "gputrain/setup/versions.hpp"

namespace gputrain::app {
namespace {

doctor::BestRates best_rates() {
  return doctor::BestRates([](const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  });
}

doctor::Software software_here() {
  const device::CudaSoftware cuda = device::cuda_software();
  const std::string nccl = comm::nccl_name();
  return {.gputrain = version(),
          .torch = torch_version().substr(torch_version().find(' ') + 1),
          .build = doctor::build_id(),
          .cuda = cuda.version,
          .cudnn = cuda.cudnn,
          .nccl = nccl.substr(std::min(nccl.size(), nccl.find(' ') + 1)),
          .gpu_obstacle = device::gpu_obstacle(),
          .usable_gpus = device::gpu_count()};
}

/// Returns the bytes per second; 0 if nothing can be written.
double write_speed_of(const std::filesystem::path& folder) {
  try {
    return doctor::write_speed(folder);
  } catch (const Error&) {
    return 0;
  }
}

/// Computes the size of the job's checkpoints. The model is built in sizes alone, and its weights need not be there.
doctor::PlannedCheckpoints planned_by(const std::string& file) {
  const Job job = load_job({.file = file, .set = {}, .output_dir = {}});
  take_harmless_environment(job.spec().env);
  const auto traffic = std::make_shared<comm::CollectiveTraffic>();
  const JobDatasets datasets = open_datasets(job, Purpose::planning);
  TrainingSetup setup(
      job, simulate_rank(job, {}, traffic), [&] { return datasets; }, /*kept_global_batch=*/0, Weights::sizes);
  doctor::PlannedCheckpoints planned{.folder = existing_part_of(job.output_dir).string(),
                                     .run_folder = std::filesystem::absolute(job.output_dir).string(),
                                     .shares_saves = job.spec().parallel.shard != "none" ||
                                                     job.spec().parallel.tensor > 1 || job.spec().parallel.pipeline > 1,
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
          {"folder", machine.planned ? machine.planned->folder : ""},
          {"run_folder", machine.planned ? machine.planned->run_folder : ""},
          {"shares_saves", machine.planned && machine.planned->shares_saves},
          {"findings", doctor::to_json(findings)}};
}

std::string bold(const std::string& text, bool colour) { return colour ? "\x1b[1m" + text + "\x1b[0m" : text; }

/// Lists the problems of a host, and the names of the checks that are fine.
doctor::Findings summary_of(const doctor::HostReport& report) {
  if (!report.problem.empty())
    return {{.check = "", .verdict = doctor::Verdict::bad, .text = "cannot be examined: " + report.problem}};
  doctor::Findings findings;
  std::string fine;
  for (const doctor::Finding& finding : report.findings) {
    if (finding.verdict != doctor::Verdict::ok || finding.check == "rates") {
      findings.push_back(finding);
    } else {
      fine += (fine.empty() ? "" : ", ") + finding.check;
    }
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
                             ? doctor::Findings{{.check = "",
                                                 .text = "nothing differs; clocks agree, ports are open, disks write "
                                                         "alike"}}
                             : hosts.between);
}

nlohmann::json json_or_null(const std::optional<double>& number) {
  return number ? nlohmann::json(*number) : nlohmann::json();
}

nlohmann::json to_json(const doctor::ExaminedHosts& hosts, bool is_fit) {
  auto reports = nlohmann::json::array();
  for (const doctor::HostReport& report : hosts.reports) {
    reports.push_back({{"host", report.host},
                       {"problem", report.problem},
                       {"address", report.address},
                       {"fit", report.problem.empty() && doctor::is_fit(report.findings)},
                       {"write_bytes_per_second", json_or_null(report.write_speed)},
                       {"rates", report.rates ? launch::to_json(*report.rates) : nlohmann::json()},
                       {"findings", doctor::to_json(report.findings)}});
  }
  return {{"schema", 1}, {"fit", is_fit}, {"hosts", reports}, {"between", doctor::to_json(hosts.between)}};
}

std::vector<launch::Host> hosts_of(const DoctorRequest& request) {
  std::vector<launch::Host> hosts;
  for (const std::string& text : request.hosts) {
    std::string problem;
    const auto host = launch::read_host(text, problem);
    if (!host) throw Error(ExitCode::usage, {.what = problem, .where = "--hosts"});
    hosts.push_back(*host);
  }
  return hosts;
}

int examine_hosts(const DoctorRequest& request) {
  const std::string here = std::filesystem::current_path().string();
  std::vector<std::string> arguments{"doctor", "--serve"};
  if (!request.job.empty()) arguments.insert(arguments.end(), {"--folder", here, request.job});
  const doctor::ExaminedHosts hosts =
      doctor::examine({.hosts = hosts_of(request),
                       .arguments = arguments,
                       .folder = request.folder.empty() ? here : std::filesystem::absolute(request.folder).string(),
                       .measures = request.measures,
                       .device = request.device,
                       .least_percent = request.least_percent},
                      best_rates());
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

/// Changes to the launcher's folder, if it is here; a job's path may be relative to it.
void go_to(const std::string& folder, bool has_job) {
  std::error_code failure;
  std::filesystem::current_path(folder, failure);
  if (failure && has_job)
    throw Error(ExitCode::environment,
                {.what = "the folder is not on this host: " + failure.message(), .where = folder});
}

void check_folder_has_use(const DoctorRequest& request) {
  const bool is_measured = request.measures || !request.hosts.empty();
  if (is_measured && request.job.empty()) return;
  throw Error(ExitCode::usage, {.what = is_measured ? "--folder and a job are both given: the job says where it writes"
                                                    : "--folder is only for --bench and --hosts"});
}

/// Measures the machine's rates, and tells where the best ones are kept.
doctor::Findings measured(const DoctorRequest& request, const std::string& folder, nlohmann::json& report) {
  const doctor::BestRates best = best_rates();
  const launch::MachineRates rates =
      doctor::measure_rates({.device = request.device, .folder = folder, .least_percent = request.least_percent}, best);
  doctor::Findings findings = doctor::rate_findings(rates, request.least_percent);
  const std::string problem = best.keep(rates);
  doctor::Finding kind{.check = "rates", .text = rates.kind + "; best rates in " + best.file().string()};
  if (!problem.empty())
    kind = {.check = "rates", .verdict = doctor::Verdict::warn, .text = rates.kind + "; no rates are kept: " + problem};
  findings.insert(findings.begin(), kind);
  report["rates"] = launch::to_json(rates);
  return findings;
}

int print(const DoctorRequest& request, const doctor::Findings& findings, const nlohmann::json& report,
          bool trains_on_cpu) {
  if (request.json) {
    std::printf("%s\n", report.dump(2).c_str());
  } else {
    const bool colour = monitor::Console::detect(true).colour;
    std::printf("%s", doctor::page(findings, monitor::terminal_width(), colour).c_str());
    std::printf("%s\n", doctor::summary_line(findings, trains_on_cpu).c_str());
  }
  return doctor::is_fit(findings) ? 0 : static_cast<int>(ExitCode::environment);
}

}  // namespace

int doctor_command(const DoctorRequest& request) {
  if (!request.folder.empty() && !request.serves) check_folder_has_use(request);
  if (!request.hosts.empty()) return examine_hosts(request);
  if (request.serves) go_to(request.folder, !request.job.empty());
  doctor::Machine machine = doctor::look_at_this_machine(software_here());
  if (!request.job.empty()) machine.planned = planned_by(request.job);
  doctor::Findings findings = doctor::check_all(machine);
  if (request.serves) {
    doctor::serve(to_json(machine, findings).dump(), best_rates());
    return 0;
  }
  nlohmann::json rates;
  if (request.measures) {
    const std::string folder = !request.folder.empty() ? request.folder
                               : machine.planned       ? machine.planned->folder
                                                       : ".";
    for (doctor::Finding& finding : measured(request, folder, rates)) findings.push_back(std::move(finding));
  }
  nlohmann::json report = to_json(machine, findings);
  report.update(rates.is_null() ? nlohmann::json::object() : rates);
  return print(request, findings, report, machine.software.usable_gpus == 0);
}

}  // namespace gputrain::app
