// Records this thread's operators with Kineto, LibTorch's profiler.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/models/model.hpp"
#include "gputrain/nn/unit_range.hpp"
#include "profile_range.hpp"

namespace gputrain::train {

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
  void begin_step() { step_.emplace(kStepRange); }
  void end_step() { step_.reset(); }
  /// Ends the recording and writes it as a trace, which Perfetto opens. Returns a table of what took most of the steps.
  std::string save(const std::filesystem::path& path);

  void enter(const nn::Module& module) override;
  void leave() override { open_units_.pop_back(); }

 private:
  void end_ranges();

  bool on_gpu_;
  std::map<const nn::Module*, std::string> units_;
  bool is_on_ = false;
  std::optional<ProfileRange> step_;
  std::vector<std::unique_ptr<ProfileRange>> open_units_;  // null: a module that is no unit
};

}  // namespace gputrain::train
