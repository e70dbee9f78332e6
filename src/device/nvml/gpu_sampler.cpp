#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "gpu_reader.hpp"
#include "gputrain/device/gpu_readings.hpp"
#include "gputrain/device/thread.hpp"

namespace gputrain::device {

/// Shared by the sampler and its thread, which outlives the sampler if a call of the library does not return.
struct GpuSampler::State {
  Options options;
  std::string library;
  std::mutex mutex;
  std::condition_variable changed;
  GpuReadings readings;
  bool stop = false, ended = false;
  std::thread thread;  // only the sampler touches it
};

namespace {

std::string library_path() {
  const char* path = std::getenv("GPUTRAIN_NVML");
  return path == nullptr || *path == '\0' ? "libnvidia-ml.so.1" : path;
}

struct WatchedGpu {
  nvml::Device device = nullptr;  // null: the GPU was lost before the sampler came
  GpuReading facts;
};

/// The open library with the GPUs that are watched.
class Session {
 public:
  explicit Session(const std::string& path) : library_(nvml::load(path)) {
    if (!library_) {
      readings_.obstacle = path + " is not there: no NVIDIA driver is installed";
    } else if (nvml::call(library_->init) != nvml::kSuccess) {
      readings_.obstacle = "the NVIDIA driver does not answer";
    } else {
      initialised_ = true;
    }
  }
  ~Session() {
    if (!initialised_) return;
    if (events_ != nullptr) nvml::call(library_->free_event_set, events_);
    nvml::call(library_->shutdown);
  }
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  void find_gpus(const std::vector<std::string>& wanted);
  GpuReadings read();
  const std::string& obstacle() const { return readings_.obstacle; }

 private:
  void note_xids();

  std::optional<nvml::Library> library_;
  bool initialised_ = false;
  nvml::EventSet events_ = nullptr;
  std::vector<WatchedGpu> gpus_;
  GpuReadings readings_;  // the values that stay equal from one reading to the next
};

void Session::find_gpus(const std::vector<std::string>& wanted) {
  if (!initialised_) return;
  std::array<char, 128> version{};
  if (nvml::call(library_->driver_version, version.data(), static_cast<unsigned>(version.size() - 1)) == nvml::kSuccess)
    readings_.driver_version = version.data();
  int cuda = 0;
  if (nvml::call(library_->cuda_version, &cuda) == nvml::kSuccess) readings_.cuda_version = cuda;
  unsigned count = 0;
  if (nvml::call(library_->count, &count) != nvml::kSuccess) count = 0;
  if (nvml::call(library_->new_event_set, &events_) != nvml::kSuccess) events_ = nullptr;
  for (unsigned index = 0; index < count; ++index) {
    WatchedGpu gpu;
    const int answer = nvml::call(library_->device, index, &gpu.device);
    if (answer == nvml::kSuccess) {
      gpu.facts = nvml::facts_of(*library_, gpu.device);
      if (events_ != nullptr) nvml::call(library_->register_events, gpu.device, nvml::kXidEvent, events_);
    } else {
      gpu.device = nullptr;
      gpu.facts.lost = answer == nvml::kGpuIsLost;
    }
    const bool is_wanted = wanted.empty() || std::ranges::any_of(wanted, [&](const auto& name) {
                             return nvml::is_named(gpu.facts, name);
                           });
    if (is_wanted) gpus_.push_back(std::move(gpu));
  }
}

void Session::note_xids() {
  constexpr int kMostAtOnce = 1000;
  nvml::Event event{};
  for (int i = 0; events_ != nullptr && i < kMostAtOnce; ++i) {
    if (nvml::call(library_->wait_for_event, events_, &event, 0U) != nvml::kSuccess) return;
    if (event.type != nvml::kXidEvent) continue;
    for (WatchedGpu& gpu : gpus_) {
      if (gpu.device == event.device) gpu.facts.latest_xid = static_cast<int64_t>(event.data);
    }
  }
}

GpuReadings Session::read() {
  note_xids();
  readings_.gpus.clear();
  for (const WatchedGpu& gpu : gpus_) {
    readings_.gpus.push_back(gpu.facts);
    if (gpu.device != nullptr && !gpu.facts.lost) nvml::read(*library_, gpu.device, readings_.gpus.back());
  }
  ++readings_.number;
  readings_.taken = std::chrono::steady_clock::now();
  return readings_;
}

}  // namespace

GpuSampler::GpuSampler(Options options) : state_(std::make_shared<State>()) {
  state_->options = std::move(options);
  state_->library = library_path();
  const auto sample = [state = state_] {
    Session session(state->library);
    session.find_gpus(state->options.gpus);
    std::unique_lock lock(state->mutex);
    while (!state->stop) {
      lock.unlock();
      GpuReadings readings = session.read();
      lock.lock();
      state->readings = std::move(readings);
      state->changed.notify_all();
      if (!session.obstacle().empty()) break;
      state->changed.wait_for(lock, std::chrono::duration<double>(state->options.interval_seconds),
                              [&] { return state->stop; });
    }
  };
  try {
    state_->thread = start_thread("gpu readings", [sample, state = state_] {
      std::string failure;
      try {
        sample();
      } catch (const std::exception& error) {
        failure = std::string("the GPUs cannot be read: ") + error.what();
      }
      const std::lock_guard lock(state->mutex);
      if (!failure.empty()) state->readings.obstacle = failure;
      state->ended = true;
      state->changed.notify_all();
    });
  } catch (const std::system_error& failure) {
    state_->readings.obstacle = std::string("no thread to read the GPUs: ") + failure.what();
    state_->ended = true;
  }
}

GpuSampler::~GpuSampler() {
  std::unique_lock lock(state_->mutex);
  state_->stop = true;
  state_->changed.notify_all();
  const bool ended = state_->changed.wait_for(lock, std::chrono::milliseconds(200), [this] { return state_->ended; });
  lock.unlock();
  if (!state_->thread.joinable()) return;
  if (ended) {
    state_->thread.join();
  } else {
    state_->thread.detach();
  }
}

GpuReadings GpuSampler::latest() const {
  const std::lock_guard lock(state_->mutex);
  return state_->readings;
}

bool GpuSampler::wait_for(int64_t number, std::chrono::steady_clock::time_point deadline) const {
  std::unique_lock lock(state_->mutex);
  return state_->changed.wait_until(
      lock, deadline, [&] { return state_->readings.number >= number || !state_->readings.obstacle.empty(); });
}

}  // namespace gputrain::device
