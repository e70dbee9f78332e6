#include "profile_recording.hpp"

#include <cstdlib>
#include <set>
#include <string_view>
#include <utility>

#include <ATen/SequenceNumber.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include "operator_flops.hpp"

namespace gputrain::train {
namespace {

using torch::autograd::profiler::KinetoEvent;
using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;

constexpr std::string_view kUnitPrefix = "unit ";
// libkineto's numbers of kinds of events; its header is not installed.
constexpr uint8_t kOperator = 0, kAnnotation = 1, kAnnotationOnGpu = 2;
constexpr uint64_t kFirstStream = 10'000, kMostStreams = 1'000;

ProfilerConfig profiler_config() {
  return ProfilerConfig(torch::profiler::impl::ProfilerState::KINETO, /*report_input_shapes=*/true);
}

std::set<ActivityType> profiled_activities(bool on_gpu) {
  return on_gpu ? std::set{ActivityType::CPU, ActivityType::CUDA} : std::set{ActivityType::CPU};
}

Shapes lists_of(const KinetoEvent& event) {
  Shapes lists;
  if (!event.hasConcreteInputs()) return lists;
  for (const c10::IValue& input : event.concreteInputs()) {
    if (input.isIntList()) lists.push_back(input.toIntVector());
  }
  return lists;
}

std::string shapes_text(const Shapes& shapes) {
  std::string text;
  for (const auto& shape : shapes) {
    std::string sizes;
    for (const int64_t size : shape) sizes += (sizes.empty() ? "" : "x") + std::to_string(size);
    text += (text.empty() ? "" : ", ") + (sizes.empty() ? "-" : sizes);
  }
  return text;
}

ProfiledEvent::Kind kind_of(const KinetoEvent& event, bool on_device) {
  if (on_device) return ProfiledEvent::Kind::device;
  switch (static_cast<at::RecordScope>(event.scope())) {
    case at::RecordScope::BACKWARD_FUNCTION:
      return ProfiledEvent::Kind::backward;
    case at::RecordScope::USER_SCOPE:
      return event.name().starts_with(kUnitPrefix) ? ProfiledEvent::Kind::unit : ProfiledEvent::Kind::range;
    default:
      return ProfiledEvent::Kind::op;
  }
}

/// Shortens a name: "torch::autograd::CppNode<gputrain::ops::cpu::(anonymous namespace)::RowNorm>" is RowNormBackward.
std::string short_name(std::string name) {
  constexpr std::string_view kNode = "torch::autograd::CppNode<";
  const size_t node = name.find(kNode);
  if (node == std::string::npos || !name.ends_with('>')) return name;
  const size_t last = name.rfind("::");
  const size_t begin = last < node + kNode.size() ? node + kNode.size() : last + 2;
  return name.substr(0, node) + name.substr(begin, name.size() - begin - 1) + "Backward";
}

ProfiledEvent event_of(const KinetoEvent& event, bool on_device) {
  ProfiledEvent result{.name = short_name(event.name()),
                       .kind = kind_of(event, on_device),
                       .track = event.startThreadId(),
                       .begin_ns = static_cast<int64_t>(event.startNs()),
                       .end_ns = static_cast<int64_t>(event.endNs())};
  if (on_device) {
    const auto stream = static_cast<uint64_t>(event.deviceResourceId()) % kMostStreams;
    result.track = kFirstStream + static_cast<uint64_t>(event.deviceIndex()) * kMostStreams + stream;
    return result;
  }
  if (result.kind == ProfiledEvent::Kind::unit) result.name = result.name.substr(kUnitPrefix.size());
  result.sequence = event.sequenceNr();
  if (!event.hasShapes()) return result;
  const Shapes shapes = event.shapes().vec();
  result.flops = flops_of(result.name, shapes, lists_of(event));
  result.shapes = shapes_text(shapes);
  return result;
}

std::string name_of_track(uint64_t track, uint64_t own_thread) {
  if (track < kFirstStream) return track == own_thread ? "main thread" : "thread " + std::to_string(track);
  return "GPU stream " + std::to_string((track - kFirstStream) % kMostStreams);
}

}  // namespace

ProfileRecording::ProfileRecording(models::Model& model, at::Device device) : on_gpu_(device.is_cuda()) {
  for (const models::Unit& unit : model.units()) {
    for (const nn::Module* module : unit.modules) units_[module] = std::string(kUnitPrefix) + unit.name;
  }
  // Without a GPU, Kineto reports on stderr that it finds none.
  if (!on_gpu_) ::setenv("KINETO_LOG_LEVEL", "99", /*overwrite=*/0);
  torch::autograd::profiler::prepareProfiler(profiler_config(), profiled_activities(on_gpu_));
}

ProfileRecording::~ProfileRecording() {
  if (!is_on_) return;
  try {
    stop();
  } catch (const std::exception&) {  // training has already failed
  }
}

void ProfileRecording::start() {
  torch::autograd::profiler::enableProfiler(profiler_config(), profiled_activities(on_gpu_));
  is_on_ = true;
  nn::unit_listener() = this;
}

void ProfileRecording::begin_step() {
  step_ = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
  if (step_->isActive()) step_->before(kStepRange);
}

void ProfileRecording::enter(const nn::Module& module) {
  const auto found = units_.find(&module);
  auto range = std::make_unique<at::RecordFunction>(at::RecordScope::USER_SCOPE);
  if (found != units_.end() && range->isActive()) {
    range->before(found->second);
    passes_.push_back({.unit = found->second.substr(kUnitPrefix.size()),
                       .first = static_cast<int64_t>(at::sequence_number::peek()),
                       .end = INT64_MAX});
  }
  open_units_.push_back(std::move(range));
}

void ProfileRecording::leave() {
  const bool is_recorded = open_units_.back()->isActive();
  open_units_.pop_back();
  if (is_recorded && !passes_.empty()) passes_.back().end = static_cast<int64_t>(at::sequence_number::peek());
}

Recorded ProfileRecording::stop() {
  is_on_ = false;
  nn::unit_listener() = nullptr;
  open_units_.clear();
  step_.reset();
  const auto result = torch::autograd::profiler::disableProfiler();
  Recorded recorded{.events = {}, .passes = std::move(passes_), .tracks = {}};
  const uint64_t own_thread = at::RecordFunction::currentThreadId();
  for (const KinetoEvent& event : result->events()) {
    const bool on_device = event.deviceType() != at::kCPU;
    const uint8_t type = event.activityType();
    if (event.isHiddenEvent() || event.isAsync() || type == kAnnotationOnGpu) continue;
    if (!on_device && type != kOperator && type != kAnnotation) continue;  // calls of the CUDA runtime
    recorded.events.push_back(event_of(event, on_device));
    const uint64_t track = recorded.events.back().track;
    recorded.tracks.try_emplace(track, name_of_track(track, own_thread));
  }
  return recorded;
}

}  // namespace gputrain::train
