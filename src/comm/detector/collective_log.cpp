#include "collective_log.hpp"

#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/random.hpp"

namespace gputrain::comm {
namespace {

using nlohmann::json;

// Ranks compare hashes at marks, one every kMarkEvery collectives. The journal keeps more calls than that, so that it
// can still name a difference between two marks.
constexpr int64_t kMarkEvery = 64;
constexpr size_t kCallsKept = 256;

double seconds_since(std::chrono::steady_clock::time_point moment) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - moment).count();
}

}  // namespace

const RankStatus::Lane& RankStatus::lane(const std::string& group) const {
  static const Lane none;
  const auto found = lanes.find(group);
  return found == lanes.end() ? none : found->second;
}

std::optional<std::string> RankStatus::call(const std::string& group, int64_t number) const {
  const Lane& of = lane(group);
  const int64_t back = of.last - number;
  if (back < 0 || back >= std::ssize(of.calls)) return std::nullopt;
  return of.calls[of.calls.size() - 1 - static_cast<size_t>(back)];
}

json to_json(const RankStatus& status) {
  json lanes = json::object();
  for (const auto& [group, lane] : status.lanes) {
    lanes[group] = {{"begun", lane.begun}, {"mark", lane.mark}, {"hash", lane.mark_hash}};
    if (!lane.calls.empty()) lanes[group].update({{"calls", lane.calls}, {"last", lane.last}});
  }
  json all{{"place", status.phase}, {"seconds", status.phase_seconds}, {"lanes", std::move(lanes)}};
  if (const auto& waiting = status.waiting) {
    all["waiting"] = {{"group", waiting->group},
                      {"number", waiting->number},
                      {"what", waiting->what},
                      {"seconds", waiting->seconds},
                      {"caller", waiting->caller}};
  }
  return all;
}

RankStatus rank_status_from_json(const json& all) {
  RankStatus status{.phase = all.at("place"), .phase_seconds = all.at("seconds"), .waiting = {}, .lanes = {}};
  for (const auto& [group, lane] : all.at("lanes").items()) {
    RankStatus::Lane& into = status.lanes[group];
    into = {.begun = lane.at("begun"), .mark = lane.at("mark"), .mark_hash = lane.at("hash"), .calls = {}};
    if (!lane.contains("calls")) continue;
    into.calls = lane.at("calls").get<std::vector<std::string>>();
    into.last = lane.at("last");
  }
  if (!all.contains("waiting")) return status;
  const json& waiting = all["waiting"];
  status.waiting = AwaitedCollective{.group = waiting.at("group"),
                                     .number = waiting.at("number"),
                                     .what = waiting.at("what"),
                                     .seconds = waiting.at("seconds"),
                                     .caller = waiting.at("caller")};
  return status;
}

bool CollectiveLog::enter(const char* phase, int64_t step) {
  const std::lock_guard lock(mutex_);
  step_ = step;
  entered_ = Clock::now();
  return std::exchange(phase_, phase) != phase;
}

int64_t CollectiveLog::begin(const std::string& group, const std::string& what, const at::Tensor& tensor) {
  std::string call = what;
  if (tensor.defined()) {
    call += " (" + std::to_string(tensor.numel()) + " x " + c10::toString(tensor.scalar_type()) + ")";
  }
  const std::lock_guard lock(mutex_);
  Lane& lane = lanes_[group];
  lane.hash = mix(lane.hash, stable_hash(call));
  if (++lane.begun % kMarkEvery == 0) lane.mark = lane.begun, lane.mark_hash = lane.hash;
  lane.calls.push_back(std::move(call));
  if (lane.calls.size() > kCallsKept) lane.calls.pop_front();
  return lane.begun;
}

void CollectiveLog::wait_for(AwaitedCollective waiting) {
  const std::lock_guard lock(mutex_);
  waiting_ = std::move(waiting);
  waits_since_ = Clock::now();
}

void CollectiveLog::waited() {
  const std::lock_guard lock(mutex_);
  waiting_.reset();
}

RankStatus CollectiveLog::status(bool with_calls) const {
  const std::lock_guard lock(mutex_);
  RankStatus now{.phase = phase_, .phase_seconds = seconds_since(entered_), .waiting = waiting_, .lanes = {}};
  if (step_ >= 0) now.phase += " " + std::to_string(step_);
  if (now.waiting) now.waiting->seconds = seconds_since(waits_since_);
  for (const auto& [group, lane] : lanes_) {
    RankStatus::Lane& into = now.lanes[group];
    into = {.begun = lane.begun, .mark = lane.mark, .mark_hash = lane.mark_hash, .calls = {}};
    if (!with_calls) continue;
    into.calls = {lane.calls.begin(), lane.calls.end()};
    into.last = lane.begun;
  }
  return now;
}

}  // namespace gputrain::comm
