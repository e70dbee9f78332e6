#include "gputrain/datasets/parallel_for.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "gputrain/core/taken_warnings.hpp"
#include "gputrain/device/host.hpp"

namespace gputrain::datasets {

void parallel_for(size_t count, const std::function<void(size_t)>& work) {
  constexpr size_t kAtOnce = 16;  // makes threads seldom meet at the counter
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  size_t failed_at = count;
  std::exception_ptr failure;
  const auto run = [&] {
    for (size_t begin = next.fetch_add(kAtOnce); begin < count; begin = next.fetch_add(kAtOnce)) {
      for (size_t i = begin; i < std::min(begin + kAtOnce, count); ++i) {
        try {
          work(i);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (i < failed_at) failure = std::current_exception();
          failed_at = std::min(failed_at, i);
        }
      }
    }
  };
  {
    const size_t threads = std::min(static_cast<size_t>(device::cpus_of_rank(1)), (count + kAtOnce - 1) / kAtOnce);
    std::vector<std::jthread> others;
    for (size_t i = 1; i < threads; ++i) {
      others.emplace_back([&, warnings = log::TakenWarnings::current()] {
        const log::WorkerWarnings taken(warnings);
        run();
      });
    }
    run();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace gputrain::datasets
