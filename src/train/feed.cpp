#include "gputrain/train/feed.hpp"

#include <ATen/ops/tensor.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <span>
#include <utility>

#include "gputrain/core/error.hpp"

namespace gputrain::train {
namespace {

constexpr size_t kWeight = 0, kSamples = 1, kInterrupts = 2, kTerminations = 3, kWishes = 4;

volatile std::sig_atomic_t first_signal = 0;

extern "C" void note_signal(int signal) {
  if (first_signal == SIGINT && signal == SIGINT) std::_Exit(static_cast<int>(ExitCode::interrupted));
  if (first_signal == 0) first_signal = signal;
}

Agreement read_sums(std::span<const int64_t> sums) {
  Agreement agreed{.weight = sums[kWeight], .samples = sums[kSamples], .stop_signal = 0, .wishes = {}};
  if (sums[kInterrupts] > 0) agreed.stop_signal = SIGINT;
  if (sums[kTerminations] > 0) agreed.stop_signal = SIGTERM;
  for (const int64_t wish : sums.subspan(kWishes)) agreed.wishes.push_back(wish > 0);
  return agreed;
}

}  // namespace

void Feed::prefetch(const std::vector<bool>& wishes) {
  const auto begin = std::chrono::steady_clock::now();
  Step step{.data = loader_.next_step(), .agreed = {}, .wait_seconds = 0};
  step.wait_seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const int signal = noted_signal();
  std::vector<int64_t> mine{step.data.weight, step.data.samples, signal == SIGINT, signal == SIGTERM};
  for (const bool wish : wishes) mine.push_back(wish && groups_.rank() == 0);
  sums_ = at::tensor(mine, at::kLong);
  pending_ = groups_.control().all_reduce_sum(sums_, "agreement on the next step");
  fetched_ = std::move(step);
}

Feed::Step Feed::next() {
  GPUTRAIN_ASSERT(fetched_.has_value(), "next() without prefetch()");
  pending_.wait();
  Step step = std::move(*fetched_);
  fetched_.reset();
  step.agreed = read_sums({sums_.const_data_ptr<int64_t>(), static_cast<size_t>(sums_.numel())});
  return step;
}

void watch_signals() {
  struct sigaction action{};
  action.sa_handler = note_signal;
  sigemptyset(&action.sa_mask);
  for (const int signal : {SIGINT, SIGTERM}) sigaction(signal, &action, nullptr);
}

int noted_signal() noexcept { return first_signal; }

}  // namespace gputrain::train
