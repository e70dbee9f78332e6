#include "gputrain/device/host_allocator.hpp"

#include <pthread.h>
#include <sys/resource.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include <ATen/ops/empty.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include "gputrain/core/error.hpp"
#include "gputrain/core/random.hpp"
#include "gputrain/device/thread.hpp"
#include "support/sanitizers.hpp"

namespace gputrain::device {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;

class HostAllocator : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { install_host_allocator(); }
};

at::Tensor bytes(int64_t count) { return at::empty({count}, at::kByte); }

TEST_F(HostAllocator, ReusesFreedBlockOfSameSize) {
  const void* first = bytes(5 * kMebibyte).const_data_ptr();
  const int64_t reused = host_allocator_facts().reused;
  const at::Tensor same = bytes(5 * kMebibyte);
  EXPECT_EQ(same.const_data_ptr(), first);
  EXPECT_EQ(host_allocator_facts().reused, reused + 1);
  EXPECT_NE(bytes(5 * kMebibyte).const_data_ptr(), first);
}

TEST_F(HostAllocator, ForgetsPeakAndReleasesKeptBlocks) {
  const at::Tensor held = bytes(3 * kMebibyte);
  { const at::Tensor gone = bytes(50 * kMebibyte); }
  EXPECT_GE(host_allocator_facts().kept_bytes, 50 * kMebibyte);
  forget_host_peak();
  const HostAllocatorFacts facts = host_allocator_facts();
  EXPECT_EQ(facts.kept_bytes, 0);
  EXPECT_EQ(facts.peak_in_use_bytes, facts.in_use_bytes);
  EXPECT_GE(facts.in_use_bytes, 3 * kMebibyte);
}

TEST_F(HostAllocator, IgnoresBlocksFarTooLarge) {
  const void* large = bytes(40 * kMebibyte).const_data_ptr();
  EXPECT_NE(bytes(30 * kMebibyte).const_data_ptr(), large);
}

TEST_F(HostAllocator, KeepsAtMost25PercentAbovePeakUse) {
  RandomStream random(11, 0);
  std::vector<at::Tensor> held;
  for (int i = 0; i < 2000; ++i) {
    if (held.size() < 20 && random.uniform() < 0.6) {
      held.push_back(bytes(kMebibyte / 4 + random.below(6 * kMebibyte)));
    } else if (!held.empty()) {
      held.erase(held.begin() + random.below(static_cast<int64_t>(held.size())));
    }
    const HostAllocatorFacts facts = host_allocator_facts();
    ASSERT_LE(facts.in_use_bytes + facts.kept_bytes, facts.peak_in_use_bytes * 5 / 4);
  }
  EXPECT_GT(host_allocator_facts().reused, 100);
}

TEST_F(HostAllocator, ReusesAllBlocksInSecondStep) {
  const auto step = [] {
    std::vector<at::Tensor> held;
    for (int i = 0; i < 10; ++i) held.push_back(bytes(4 * kMebibyte));
    held.resize(8);
    for (int i = 0; i < 2; ++i) held.push_back(bytes(5 * kMebibyte));
  };
  forget_host_peak();
  step();
  const HostAllocatorFacts before = host_allocator_facts();
  step();
  const HostAllocatorFacts after = host_allocator_facts();
  EXPECT_EQ(after.reused - before.reused, after.requests - before.requests);
}

/// While it exists, the process may use only `room` more bytes of memory than now.
class DataLimit {
 public:
  explicit DataLimit(int64_t room) {
    ::getrlimit(RLIMIT_DATA, &before_);
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);) {
      if (!line.starts_with("VmData:")) continue;
      const rlimit limit{static_cast<rlim_t>(std::stoll(line.substr(7)) * 1024 + room), before_.rlim_max};
      EXPECT_EQ(::setrlimit(RLIMIT_DATA, &limit), 0);
    }
  }
  ~DataLimit() { ::setrlimit(RLIMIT_DATA, &before_); }

 private:
  rlimit before_{};
};

TEST_F(HostAllocator, KeepsAtMostHalfOfFreeMemoryAbovePeak) {
  if (testing::kIsSanitized) GTEST_SKIP() << testing::kNoDataLimit;
  std::vector<at::Tensor> held;
  const auto hold = [&](size_t count, int64_t mebibytes) {
    while (held.size() < count) held.push_back(bytes(mebibytes * kMebibyte));
  };
  forget_host_peak();
  hold(10, 4);
  held.resize(8);
  const int64_t peak = host_allocator_facts().peak_in_use_bytes;
  const DataLimit limit(6 * kMebibyte);
  hold(9, 5);  // the limits by peak and by free memory would each keep more, next to the two waiting blocks
  const HostAllocatorFacts facts = host_allocator_facts();
  EXPECT_GT(facts.kept_bytes, 0);
  EXPECT_LE(facts.in_use_bytes + facts.kept_bytes, peak + 3 * kMebibyte);
}

TEST_F(HostAllocator, ReleasesKeptBlocksForThreadStack) {
  if (testing::kIsSanitized) GTEST_SKIP() << testing::kNoDataLimit;
  forget_host_peak();
  { const at::Tensor gone = bytes(50 * kMebibyte); }
  const int64_t peak = host_allocator_facts().peak_in_use_bytes;
  const DataLimit limit(kMebibyte);
  bool ran = false;
  // Larger than the stacks of finished threads, which the C library caches.
  pthread_attr_t before;
  pthread_getattr_default_np(&before);
  pthread_attr_t large = before;
  pthread_attr_setstacksize(&large, 45 * kMebibyte);
  pthread_setattr_default_np(&large);
  EXPECT_THROW(std::thread([] {}), std::system_error);
  start_thread("test", [&ran] { ran = true; }).join();
  pthread_setattr_default_np(&before);
  EXPECT_TRUE(ran);
  EXPECT_EQ(host_allocator_facts().peak_in_use_bytes, peak);
}

TEST_F(HostAllocator, SharesNoBlockBetweenThreads) {
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (size_t t = 0; t < wrong.size(); ++t) {
    threads.emplace_back([t, &wrong] {
      RandomStream random(5, t);
      for (int i = 0; i < 200; ++i) {
        const int64_t count = 1000 + random.below(kMebibyte);
        const at::Tensor mine = at::full({count}, static_cast<int64_t>(t), at::kByte);
        const at::Tensor copy = mine.clone();
        if (!at::equal(mine, copy) || mine[count - 1].item<int64_t>() != static_cast<int64_t>(t)) ++wrong[t];
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST_F(HostAllocator, AlignsEveryTensorForVectorCode) {
  for (const int64_t count :
       {int64_t{1}, int64_t{100}, int64_t{5000}, kMebibyte / 4 - 1, kMebibyte / 4, 3 * kMebibyte}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(bytes(count).const_data_ptr()) % 64, 0u) << count;
  }
  EXPECT_EQ(bytes(0).numel(), 0);
}

TEST_F(HostAllocator, ReportsRefusedMemoryAsEnvironmentError) {
  try {
    (void)bytes(int64_t{1} << 50);
    ADD_FAILURE() << "was granted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::environment);
  }
}

}  // namespace
}  // namespace gputrain::device
