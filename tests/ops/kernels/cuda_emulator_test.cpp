// The emulator that runs kernels on a CPU detects the errors it is made for.
#include <stdexcept>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "../../../src/ops/cuda/kernels/device.cuh"

namespace gputrain::ops::cuda {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

void run_warp(void (*kernel)(int*), int* out) { launch(kernel, dim3{1, 1, 1}, dim3{32, 1, 1}, nullptr, out); }

TEST(Lanes, RunEveryThreadOfEveryBlock) {
  std::vector<int> seen(3 * 64);
  const auto kernel = +[](int* out) { out[block_x() * 64 + thread_y() * 32 + thread_x()] += 1; };
  launch(kernel, dim3{3, 1, 1}, dim3{32, 2, 1}, nullptr, seen.data());
  EXPECT_THAT(seen, testing::Each(1));
}

TEST(Lanes, ShuffleWithinWarpsOfA2dBlock) {
  std::vector<int> sums(64);
  const auto kernel = +[](int* out) {
    const int number = thread_y() * threads_x() + thread_x();
    out[number] = warp_sum(number);
  };
  launch(kernel, dim3{1, 1, 1}, dim3{8, 8, 1}, nullptr, sums.data());
  EXPECT_EQ(sums[5], 31 * 32 / 2);
  EXPECT_EQ(sums[40], 32 * 32 + 31 * 32 / 2);
}

TEST(Lanes, PoisonSharedMemoryInEveryBlock) {
  std::vector<int> seen(2);
  const auto kernel = +[](int* out) {
    int& shared = block_memory<int>();
    if (thread_x() == 0) out[block_x()] = shared;
    __syncthreads();
    if (thread_x() == 1) shared = 5;
  };
  launch(kernel, dim3{2, 1, 1}, dim3{32, 1, 1}, nullptr, seen.data());
  EXPECT_THAT(seen, testing::Each(-1));
}

TEST(Lanes, ReportThreadThatMissesABarrier) {
  const auto kernel = +[](int* out) {
    if (thread_x() == 7) return;
    __syncthreads();
    out[0] = 1;
  };
  int out = 0;
  EXPECT_THAT([&] { run_warp(kernel, &out); }, ThrowsMessage<std::runtime_error>(HasSubstr("1 others do not come")));
  EXPECT_EQ(out, 0);
}

TEST(Lanes, ReportUnalignedVectorAccess) {
  alignas(16) static float values[8];
  const auto kernel = +[](int*) {
    float pack[4];
    load(values + 1, pack);
  };
  EXPECT_THAT([&] { run_warp(kernel, nullptr); }, ThrowsMessage<std::runtime_error>(HasSubstr("not aligned")));
}

TEST(Lanes, DrawPublishedPhiloxBits) {
  const RandomBits zeros = philox(0, 0, 0);  // Random123's known answers, philox4x32 with 10 rounds
  EXPECT_EQ(zeros.word[0], 0x6627e8d5U);
  EXPECT_EQ(zeros.word[3], 0x9b00dbd8U);
  const RandomBits ones = philox(~uint64_t{0}, ~uint64_t{0}, ~uint64_t{0});
  EXPECT_EQ(ones.word[0], 0x408f276dU);
  EXPECT_EQ(ones.word[3], 0x6d5451fdU);
}

#if defined(__SANITIZE_THREAD__)
void forgotten_barrier(int* out) {
  int& shared = block_memory<int>();
  if (thread_x() == 0) shared = 5;
  __shfl_xor_sync(kWholeWarp, 0, 1);  // synchronises the threads but does not order memory
  out[thread_x()] = shared;
}

// In a separate process, which ThreadSanitizer ends with its exit code.
TEST(LanesDeathTest, ShowsForgottenBarrierToThreadSanitizer) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  std::vector<int> out(32);
  EXPECT_EXIT(
      {
        run_warp(forgotten_barrier, out.data());
        _exit(0);
      },
      testing::ExitedWithCode(66), "data race");
}

void two_blocks_one_place(int* out) {
  if (thread_x() == 0) out[0] = block_x();
}

TEST(LanesDeathTest, ShowsBlocksThatWriteOnePlaceToTsan) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  int out = 0;
  EXPECT_EXIT(
      {
        launch(two_blocks_one_place, dim3{2, 1, 1}, dim3{32, 1, 1}, nullptr, &out);
        _exit(0);
      },
      testing::ExitedWithCode(66), "data race");
}
#endif

}  // namespace
}  // namespace gputrain::ops::cuda
