#include "gputrain/launch/admission.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/launch/machine_rates.hpp"
#include "gputrain/launch/remote_program.hpp"

namespace gputrain::launch {
namespace {

constexpr std::chrono::seconds kMeasuring{180};

struct MeasuredHost {
  Host host;
  MachineRates rates = {};
  std::string objection = {};  // why it may not take part
};

/// Reads the answer to the question, which follows the host's report; before that a login shell may say something.
void take_rates(RemoteProgram& program, MeasuredHost& measured, Clock::time_point deadline) {
  bool has_reported = false;
  while (const auto line = program.line(deadline)) {
    const auto json = parse_json(*line);
    if (!std::exchange(has_reported, has_reported || (json.is_object() && json.contains("findings")))) continue;
    try {
      measured.rates = machine_rates_of(json);
    } catch (const nlohmann::json::exception&) {
      measured.objection = line->substr(0, 300);
    }
    return;
  }
  measured.objection = Clock::now() >= deadline ? "it has not answered within 180 s" : program.remark();
}

std::vector<MeasuredHost> measure(const AdmissionRequest& request) {
  const auto folder = std::filesystem::absolute(request.folder);
  std::vector<std::unique_ptr<RemoteProgram>> programs;
  std::vector<MeasuredHost> hosts;
  for (const Host& host : request.plan.hosts) {
    hosts.push_back({.host = host});
    programs.push_back(std::make_unique<RemoteProgram>(host, std::vector<std::string>{"doctor", "--serve"}));
    programs.back()->tell("bench " + request.device + " " + std::to_string(request.spec.min_percent) + " " +
                          folder.string());
  }
  const auto deadline = Clock::now() + kMeasuring;
  for (size_t i = 0; i < hosts.size(); ++i) take_rates(*programs[i], hosts[i], deadline);
  return hosts;
}

void judge(std::vector<MeasuredHost>& hosts, double min_percent) {
  std::vector<MachineRates> all;
  for (const MeasuredHost& each : hosts) all.push_back(each.rates);
  share_best(all);
  for (size_t i = 0; i < hosts.size(); ++i) {
    const auto weakest = weakest_of(all[i]);
    if (!weakest || weakest->percent >= min_percent) continue;
    const Rate& rate = weakest->rate;
    hosts[i].objection = rate.of + ": " + rate.what + " " + rate.text + ", " +
                         std::to_string(std::lround(weakest->percent)) + " % of the best known of " + all[i].kind;
  }
}

}  // namespace

HostPlan admit(const AdmissionRequest& request, const std::function<void(const std::string&)>& say) {
  say("measuring " + counted(std::ssize(request.plan.hosts), "host") + " (launch.admission)");
  std::vector<MeasuredHost> hosts = measure(request);
  judge(hosts, request.spec.min_percent);
  HostPlan admitted{.hosts = {}, .count = request.plan.count};
  std::string objections;
  for (MeasuredHost& each : hosts) {
    if (each.objection.empty()) {
      admitted.hosts.push_back(std::move(each.host));
      continue;
    }
    objections += (objections.empty() ? "" : "; ") + each.host.name + ": " + each.objection;
  }
  const int left = static_cast<int>(admitted.hosts.size());
  if (objections.empty() || (request.spec.action == "exclude" && left >= admitted.count.least)) {
    if (!objections.empty()) say("left out, " + objections);
    admitted.count.most = std::min(admitted.count.most, left);
    return admitted;
  }
  const bool refuses = request.spec.action == "refuse";
  throw Error(ExitCode::environment,
              {.what = "launch.admission (at least " + std::to_string(std::lround(request.spec.min_percent)) + " %) " +
                       (refuses ? "refuses " : "leaves too few hosts, without ") + objections,
               .hint = std::string("gputrain doctor --bench there; a lower launch.admission.min_percent") +
                       (refuses ? ", or action: exclude" : "") +
                       "; the best rates are in ~/.local/state/gputrain/machines.json"});
}

}  // namespace gputrain::launch
