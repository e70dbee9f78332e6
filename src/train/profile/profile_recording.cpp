#include "profile_recording.hpp"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "gputrain/core/atomic_file.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::train {
namespace {

using torch::autograd::profiler::KinetoEvent;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;

// libkineto's numbers of kinds of events; its header is not installed.
constexpr uint8_t kOperator = 0, kAnnotation = 1, kAnnotationOnGpu = 2;

ProfilerConfig profiler_config() {
  return ProfilerConfig(torch::profiler::impl::ProfilerState::KINETO, /*report_input_shapes=*/true);
}

std::set<ActivityType> profiled_activities(bool on_gpu) {
  return on_gpu ? std::set{ActivityType::CPU, ActivityType::CUDA} : std::set{ActivityType::CPU};
}

/// Shortens names: "torch::autograd::CppNode<gputrain::ops::cpu::(anonymous namespace)::RowNorm>" is RowNormBackward.
std::string with_short_names(const std::string& text) {
  constexpr std::string_view kNode = "torch::autograd::CppNode<";
  std::string result;
  size_t at = 0;
  for (size_t node = 0; (node = text.find(kNode, at)) != std::string::npos;) {
    const size_t begin = node + kNode.size(), end = std::min(text.find('>', begin), text.size());
    const std::string type = text.substr(begin, end - begin);
    const size_t colon = type.rfind(':');
    result += text.substr(at, node - at) + type.substr(colon == std::string::npos ? 0 : colon + 1) + "Backward";
    at = std::min(end + 1, text.size());
  }
  return result + text.substr(at);
}

struct Cost {
  std::string name;
  int64_t calls = 0, own_ns = 0;  // without the operators that it called
};

struct Spent {
  std::map<std::string, Cost> costs;
  int64_t steps = 0, ns = 0;
};

int64_t duration_of(const KinetoEvent& event) { return static_cast<int64_t>(event.durationNs()); }

/// Selects the events of this thread and of devices, in order of time.
std::vector<const KinetoEvent*> sorted_events(const std::vector<KinetoEvent>& all) {
  const uint64_t own_thread = at::RecordFunction::currentThreadId();
  std::vector<const KinetoEvent*> events;
  for (const KinetoEvent& event : all) {
    const uint8_t type = event.activityType();
    if (event.isHiddenEvent() || event.isAsync() || type == kAnnotationOnGpu) continue;
    const bool is_own = event.startThreadId() == own_thread && (type == kOperator || type == kAnnotation);
    if (event.deviceType() != at::kCPU || is_own) events.push_back(&event);
  }
  std::stable_sort(events.begin(), events.end(), [](const KinetoEvent* a, const KinetoEvent* b) {
    return a->startNs() != b->startNs() ? a->startNs() < b->startNs() : a->endNs() > b->endNs();
  });
  return events;
}

/// Sums up what the device, or without one this thread, did in the steps.
Spent spent_in_steps(const std::vector<KinetoEvent>& all, bool on_gpu) {
  Spent spent;
  uint64_t end_of_step = 0;
  std::vector<std::pair<Cost*, uint64_t>> open;  // with their ends
  for (const KinetoEvent* event : sorted_events(all)) {
    const bool on_device = event->deviceType() != at::kCPU;
    const std::string name = event->name();
    if (!on_device && name == kStepRange) {
      ++spent.steps;
      spent.ns += duration_of(*event);
      end_of_step = event->endNs();
    }
    if (event->startNs() >= end_of_step || on_device != on_gpu) continue;
    Cost& cost = spent.costs[name];
    cost.name = name;
    ++cost.calls;
    cost.own_ns += duration_of(*event);
    if (on_device) continue;
    while (!open.empty() && open.back().second <= event->startNs()) open.pop_back();
    if (!open.empty()) open.back().first->own_ns -= duration_of(*event);
    open.emplace_back(&cost, event->endNs());
  }
  return spent;
}

std::string table_of(const Spent& spent) {
  constexpr size_t kRows = 10, kWidth = 90;
  std::vector<Cost> costs;
  for (const auto& [name, cost] : spent.costs) costs.push_back(cost);
  std::stable_sort(costs.begin(), costs.end(), [](const Cost& a, const Cost& b) { return a.own_ns > b.own_ns; });
  if (costs.size() > kRows) costs.resize(kRows);
  const auto steps = static_cast<double>(std::max<int64_t>(1, spent.steps));
  const double all = std::max(1.0, static_cast<double>(spent.ns));
  std::string text = fmt::format("{} of {:.3f} ms\n{:>13}  {:>7}  {:>9}  in a step, by its own time",
                                 counted(spent.steps, "step"), 1e-6 * all / steps, "time", "share", "calls");
  for (const Cost& cost : costs) {
    const auto ns = static_cast<double>(cost.own_ns);
    text += fmt::format("\n{:>10.3f} ms  {:>5.1f} %  {:>9.4g}  {}", 1e-6 * ns / steps, 100 * ns / all,
                        static_cast<double>(cost.calls) / steps, with_short_names(cost.name).substr(0, kWidth));
  }
  return text;
}

}  // namespace

ProfileRecording::ProfileRecording(models::Model& model, at::Device device) : on_gpu_(device.is_cuda()) {
  for (const models::Unit& unit : model.units()) {
    for (const nn::Module* module : unit.modules) units_[module] = unit.name;
  }
  // Without a GPU, Kineto reports on stderr that it finds none.
  if (!on_gpu_) ::setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);
  torch::autograd::profiler::prepareProfiler(profiler_config(), profiled_activities(on_gpu_));
}

ProfileRecording::~ProfileRecording() {
  if (!is_on_) return;
  try {
    end_ranges();
    torch::autograd::profiler::disableProfiler();
  } catch (const std::exception&) {  // training has already failed
  }
}

void ProfileRecording::start() {
  torch::autograd::profiler::enableProfiler(profiler_config(), profiled_activities(on_gpu_));
  is_on_ = true;
  nn::unit_listener() = this;
}

void ProfileRecording::enter(const nn::Module& module) {
  const auto found = units_.find(&module);
  open_units_.push_back(found == units_.end() ? nullptr : std::make_unique<ProfileRange>(found->second.c_str()));
}

void ProfileRecording::end_ranges() {
  is_on_ = false;
  nn::unit_listener() = nullptr;
  open_units_.clear();
  step_.reset();
}

std::string ProfileRecording::save(const std::filesystem::path& path) {
  end_ranges();
  const auto result = torch::autograd::profiler::disableProfiler();
  std::filesystem::create_directories(path.parent_path());
  result->save(path.string());
  std::ifstream file(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  write_file_atomically(path, with_short_names(text), ExitCode::environment);
  return table_of(spent_in_steps(result->events(), on_gpu_));
}

}  // namespace gputrain::train
