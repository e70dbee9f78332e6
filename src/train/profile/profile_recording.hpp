// Records this thread's operators with Kineto, LibTorch's profiler.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/record_function.h>

#include "gputrain/models/model.hpp"
#include "gputrain/nn/unit_range.hpp"
#include "profile_summary.hpp"

namespace gputrain::train {

struct Recorded {
  std::vector<ProfiledEvent> events;
  std::vector<UnitPass> passes;
  std::map<uint64_t, std::string> tracks;
};

/// One at a time in a process.
class ProfileRecording : public nn::UnitListener {
 public:
  /// Prepares a GPU's measuring unit, which takes a while.
  ProfileRecording(models::Model& model, at::Device device);
  ProfileRecording(const ProfileRecording&) = delete;
  ProfileRecording& operator=(const ProfileRecording&) = delete;
  ~ProfileRecording() override;

  bool is_on() const noexcept { return is_on_; }
  void start();
  void begin_step();
  void end_step() { step_.reset(); }
  Recorded stop();

  void enter(const nn::Module& module) override;
  void leave() override;

 private:
  bool on_gpu_;
  std::map<const nn::Module*, std::string> units_;
  bool is_on_ = false;
  std::unique_ptr<at::RecordFunction> step_;
  std::vector<std::unique_ptr<at::RecordFunction>> open_units_;
  std::vector<UnitPass> passes_;
};

}  // namespace gputrain::train
