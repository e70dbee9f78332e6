#include "gputrain/train/profile_hook.hpp"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>
#include <vector>

#include <ATen/ops/tensor.h>
#include <nlohmann/json.hpp>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "profile/profile_recording.hpp"
#include "profile/profile_trace.hpp"

namespace gputrain::train {
namespace {

int64_t wall_clock_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// Returns how far this host's clock is ahead of rank 0's. Ranks leave a barrier together, apart from the time of a
/// message; the median of some barriers is not that of a late message. Every rank must call.
int64_t clock_ahead_ns(comm::ProcessGroups& groups) {
  const auto& hosts = groups.hosts();
  if (std::all_of(hosts.begin(), hosts.end(), [&](const std::string& host) { return host == hosts.front(); })) return 0;
  constexpr int kTries = 9;
  std::vector<int64_t> ahead;
  for (int i = 0; i < kTries; ++i) {
    groups.control().barrier("clock of the profile");
    const int64_t here = wall_clock_ns();
    ahead.push_back(here - groups.from_rank_zero(here, "clock of the profile"));
  }
  std::sort(ahead.begin(), ahead.end());
  return hosts[static_cast<size_t>(groups.rank())] == hosts.front() ? 0 : ahead[kTries / 2];
}

/// Returns the numbers that rank 0 needs from every rank.
std::vector<double> costs_of_rank(const ProfileSummary& summary) {
  std::vector<double> costs{summary.seconds, summary.busy_seconds, summary.flops};
  for (const char* range : {kDataRange, kAgreeRange, kForwardRange, kBackwardRange, kReduceRange, kUpdateRange})
    costs.push_back(summary.range_seconds(range));
  return costs;
}

nlohmann::json ranks_json(const at::Tensor& costs, const std::vector<std::string>& hosts) {
  auto list = nlohmann::json::array();
  for (int64_t rank = 0; rank < costs.size(0); ++rank) {
    const at::Tensor row = costs[rank];
    const auto at = [&row](int64_t i) { return row[i].item<double>(); };
    const auto place = static_cast<size_t>(rank);
    list.push_back({{"rank", rank},
                    {"host", place < hosts.size() ? hosts[place] : ""},
                    {"seconds", at(0)},
                    {"device_busy_seconds", at(1)},
                    {"flops", at(2)},
                    {"data_seconds", at(3)},
                    {"agree_seconds", at(4)},
                    {"forward_seconds", at(5)},
                    {"backward_seconds", at(6)},
                    {"reduce_seconds", at(7)},
                    {"update_seconds", at(8)}});
  }
  return list;
}

nlohmann::json costs_json(const std::vector<ProfileCost>& costs, double of_seconds) {
  auto list = nlohmann::json::array();
  for (const ProfileCost& cost : costs) {
    nlohmann::json one{{"name", cost.name},
                       {"calls", cost.calls},
                       {"self_seconds", cost.self_seconds},
                       {"total_seconds", cost.total_seconds},
                       {"share", of_seconds > 0 ? cost.self_seconds / of_seconds : 0}};
    if (cost.flops > 0) one["flops"] = cost.flops;
    list.push_back(std::move(one));
  }
  return list;
}

nlohmann::json summary_json(const ProfileSummary& summary) {
  auto units = nlohmann::json::array();
  for (const UnitCost& unit : summary.units) {
    units.push_back(
        {{"name", unit.name}, {"forward_seconds", unit.forward_seconds}, {"backward_seconds", unit.backward_seconds}});
  }
  return {{"schema", 1},
          {"steps", summary.steps},
          {"seconds", summary.seconds},
          {"operators", costs_json(summary.operators, summary.seconds)},
          {"ranges", costs_json(summary.ranges, summary.seconds)},
          {"units", std::move(units)},
          {"kernels", costs_json(summary.kernels, summary.seconds)},
          {"device_busy_seconds", summary.busy_seconds}};
}

/// Writes a file; returns whether it could, because a full disk must not end training.
bool is_written_file(const std::filesystem::path& path, const std::string& text) {
  try {
    std::filesystem::create_directories(path.parent_path());
    write_file_atomically(path, text, ExitCode::environment);
    return true;
  } catch (const std::exception& failure) {
    log::own_warning(std::string("the profile cannot be written: ") + failure.what());
    return false;
  }
}

}  // namespace

class ProfileHook::Recording : public ProfileRecording {
 public:
  using ProfileRecording::ProfileRecording;
};

ProfileHook::ProfileHook(Parts parts) : parts_(std::move(parts)) {}
ProfileHook::~ProfileHook() = default;

void ProfileHook::before_training(Progress& progress) {
  if (is_begun_ || parts_.steps == 0) return;  // training goes on after a rollback
  is_begun_ = true;
  const int64_t left = parts_.plan.total_steps - progress.step;
  begin(parts_.steps, progress, std::clamp<int64_t>(left - parts_.steps, 0, kWarmupSteps));
}

void ProfileHook::record(int64_t steps, const Progress& progress) { begin(steps, progress, 0); }

void ProfileHook::begin(int64_t steps, const Progress& progress, int64_t warmup_steps) {
  steps_ = steps;
  first_ = progress.step + warmup_steps;
  last_ = first_ + steps;
  samples_ = 0;
  recording_ = std::make_unique<Recording>(parts_.model, parts_.device);
}

void ProfileHook::before_step(const Progress& progress) {
  if (!recording_ || progress.step < first_) return;
  if (!recording_->is_on()) {
    train_seconds_ = progress.train_seconds;
    first_ = progress.step;
    last_ = first_ + steps_;
    recording_->start();
  }
  recording_->begin_step();
}

Stop ProfileHook::after_step(Progress& progress, const StepResult& result, bool) {
  if (!recording_ || !recording_->is_on()) return Stop::none;
  recording_->end_step();
  samples_ += result.samples;
  reached_ = {.step = progress.step, .train_seconds = progress.train_seconds};
  if (progress.step >= std::min(last_, parts_.plan.total_steps)) finish(progress);
  return Stop::none;
}

Stop ProfileHook::after_training(Progress& progress, bool) {
  if (recording_ && recording_->is_on() && samples_ > 0) finish(progress);
  recording_.reset();
  return Stop::none;
}

bool ProfileHook::will_act(const Progress& progress, bool requested) const {
  return requested || (recording_ && recording_->is_on() && progress.step >= last_);
}

/// Ends the recording and writes the profile. Every rank must call. Work that may fail on one rank comes last.
void ProfileHook::finish(const Progress& progress) {
  const Recorded recorded = recording_->stop();
  recording_.reset();
  auto& groups = parts_.groups;
  constexpr int64_t kSecond = 1'000'000'000;
  const ProfileSummary summary = summarize_profile(recorded.events, recorded.passes);
  int64_t begin = wall_clock_ns();
  for (const ProfiledEvent& event : recorded.events) begin = std::min(begin, event.begin_ns);
  const auto place = static_cast<size_t>(groups.rank());
  const TraceFacts facts{.rank = groups.rank(),
                         .host = place < groups.hosts().size() ? groups.hosts()[place] : "",
                         .base_ns = groups.from_rank_zero(begin / kSecond * kSecond, "begin of the profile"),
                         .clock_ahead_ns = clock_ahead_ns(groups),
                         .tracks = recorded.tracks};
  const at::Tensor costs =
      groups.control().all_gather(at::tensor(costs_of_rank(summary), at::kDouble), "costs of the profile");
  is_written_file(parts_.folder / ("rank" + std::to_string(facts.rank) + ".trace.json"),
                  trace_text(recorded.events, facts));
  if (facts.rank != 0) return;
  nlohmann::json json = summary_json(summary);
  const ProfileFacts& of = parts_.facts;
  json["run"] = {{"device", of.device},
                 {"on_gpu", parts_.device.is_cuda()},
                 {"precision", of.precision},
                 {"micro_batch", parts_.plan.batch.micro_batch},
                 {"accumulation", parts_.plan.batch.accumulation},
                 {"global_batch", parts_.plan.batch.global_batch},
                 {"num_workers", of.num_workers}};
  json["first_step"] = first_ + 1;
  json["last_step"] = reached_.step;
  json["train_seconds"] = reached_.train_seconds - train_seconds_;
  json["model_flops"] = parts_.model.flops_per_sample() * static_cast<double>(samples_);
  json["ranks"] = ranks_json(costs, groups.hosts());
  const auto path = parts_.folder / "summary.json";
  if (is_written_file(path, json.dump(2) + "\n")) parts_.tell_written(progress);
}

}  // namespace gputrain::train
