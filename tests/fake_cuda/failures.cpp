// What goes wrong on request: a collective that hangs, a GPU that fails.
#include <atomic>
#include <chrono>
#include <thread>

#include "fake_cuda.hpp"

namespace gputrain::fake_cuda {
namespace {

std::atomic<size_t> collectives_started = 0, work_started = 0;
std::atomic<bool> hangs = false;  // the last collective hangs
std::atomic<bool> has_failed = false;

}  // namespace

void start_collectives() {
  if (++collectives_started == setting("PRETEND_HANG", 0)) hangs = true;
}

bool is_hanging() { return hangs; }

void wait_for_hang() {
  while (hangs) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void call_off() { hangs = false; }

cudaError_t start_work() {
  count("queued work");
  if (++work_started == setting("PRETEND_FAULT", 0)) has_failed = true;
  return fault();
}

cudaError_t fault() { return has_failed ? fail(cudaErrorLaunchFailure) : cudaSuccess; }

}  // namespace gputrain::fake_cuda
