// How long training is held up by trackers that hang, are killed or have no disk.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <thread>
#include <vector>

#include "gputrain/monitor/log_spec.hpp"
#include "monitor/tracked_run.hpp"
#include "support/full_disk.hpp"
#include "support/sanitizers.hpp"

namespace gputrain::monitor {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

class Handover : public TrackedRun {
 protected:
  std::unique_ptr<Recorder> begin(const std::vector<config::Choice>& sinks) {
    auto recorder =
        std::make_unique<Recorder>(sinks, SinkRequest{run_folder(), no_console_, run_id_, "small", settings_});
    recorder->truncate(0, 0);
    return recorder;
  }

  /// Gives the recorder 200 lines and a few texts. A busy machine may hold up one of them, but not most.
  static void expect_no_delay(Recorder& recorder) {
    std::vector<std::chrono::nanoseconds> times;
    for (int64_t step = 1; step <= 200; ++step) {
      const auto begin = std::chrono::steady_clock::now();
      train(recorder, step, 1);
      if (step % 50 == 0)
        recorder.log({.step = step, .kind = "sample", .texts = {{"sample", std::string(100'000, 'x')}}});
      times.push_back(std::chrono::steady_clock::now() - begin);
    }
    std::ranges::sort(times);
    EXPECT_LT(times[times.size() / 2], milliseconds(1));
    EXPECT_LT(times.back(), ::gputrain::testing::patience(milliseconds(1000)))
        << "shorter than what a tracker may take for a request";
  }

  void serve(const std::vector<std::string>& words) {
    setenv("no_proxy", "127.0.0.1", 1);
    std::vector<std::string> command{"python3", GPUTRAIN_SOURCE_DIR "/tests/monitor/fake_mlflow.py",
                                     run_folder().string()};
    command.insert(command.end(), words.begin(), words.end());
    server_ = std::make_unique<testing_support::Program>(command);
    ASSERT_TRUE(server_->prints("listening"));
    std::getline(std::ifstream(run_folder() / "address"), address_);
  }
  config::Choice mlflow() const { return {"mlflow", std::make_shared<MlflowSpec>(MlflowSpec{.uri = address_})}; }

  std::unique_ptr<testing_support::Program> server_;
  std::string address_;
};

TEST_F(Handover, OfRecordsDoesNotWaitForAServerThatHangsAndIsKilled) {
  serve({"hangs"});
  ::testing::internal::CaptureStderr();
  auto run = begin({mlflow()});
  expect_no_delay(*run);
  server_->signal(SIGKILL);  // in the middle of a request
  server_->wait();
  expect_no_delay(*run);
  run.reset();
  // 800 numbers and 8 files of texts.
  EXPECT_NE(::testing::internal::GetCapturedStderr().find("did not get 808 values"), std::string::npos);
}

TEST_F(Handover, OfRecordsDoesNotWaitForADiskThatHangs) {
  auto run = begin({{"wandb", std::make_shared<WandbSpec>()}, sinks().with_defaults("tensorboard")});
  fs::path file;
  for (const auto& entry : fs::recursive_directory_iterator(run_folder() / "wandb"))
    if (entry.path().extension() == ".wandb") file = entry.path();
  fs::remove(file);
  ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);  // who opens it waits for another process
  expect_no_delay(*run);
  const int end = ::open(file.c_str(), O_RDONLY | O_NONBLOCK);
  ASSERT_GE(::fcntl(end, F_SETPIPE_SZ, 1 << 20), 1 << 20) << "room for all";
  run.reset();
  char byte = 0;
  EXPECT_EQ(::read(end, &byte, 1), 1) << "the sink has gone on";
  ::close(end);
}

TEST_F(Handover, OfRecordsDoesNotWaitForAFullDisk) {
  ::testing::internal::CaptureStderr();
  {
    auto run = begin({sinks().with_defaults("tensorboard"), {"wandb", std::make_shared<WandbSpec>()}});
    const ::gputrain::testing::FullDisk full(4096);
    expect_no_delay(*run);
    run.reset();
  }
  const std::string told = ::testing::internal::GetCapturedStderr();
  for (const char* what : {"TensorBoard lacks metrics", "`wandb sync` lacks metrics"})
    EXPECT_NE(told.find(what), std::string::npos) << told;
}

}  // namespace
}  // namespace gputrain::monitor
