#include "gputrain/inspect/machine_bench.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>

#include "gputrain/core/descriptor.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/device/numerics.hpp"
#include "gputrain/device/runtime.hpp"
#include "gputrain/device/step_clock.hpp"
#include "gputrain/ops/precision.hpp"
#include "gputrain/setup/timed_steps.hpp"

namespace gputrain::app {
namespace {

using MachineClock = std::chrono::steady_clock;

double seconds_since(MachineClock::time_point begin) {
  return std::chrono::duration<double>(MachineClock::now() - begin).count();
}

/// Returns the median time of at least five calls.
double median_seconds(const std::function<void()>& work, at::Device device, double seconds) {
  constexpr int kWarmup = 2, kLeast = 5, kMost = 10'000;
  for (int i = 0; i < kWarmup; ++i) work();
  device::synchronize(device);
  const auto begin = MachineClock::now();
  device::StepClock clock(device);
  clock.mark();
  for (int i = 0; i < kMost && (i < kLeast || seconds_since(begin) < seconds); ++i) {
    work();
    clock.mark();
    device::synchronize(device);
  }
  return median(clock.seconds());
}

/// Memory for direct access: addresses and sizes are multiples of a block.
constexpr size_t kDiskBlock = size_t{4} << 20, kAlignment = 4096;
using DiskBuffer = std::unique_ptr<void, decltype(&std::free)>;

DiskBuffer disk_buffer() {
  DiskBuffer buffer(std::aligned_alloc(kAlignment, kDiskBlock), &std::free);
  if (!buffer) throw std::bad_alloc();
  // The content is neither zeros nor a repetition, which some disks compress.
  auto* words = static_cast<uint64_t*>(buffer.get());
  uint64_t state = 0x9E3779B97F4A7C15;
  for (size_t i = 0; i < kDiskBlock / sizeof(uint64_t); ++i) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    words[i] = state;
  }
  return buffer;
}

class DiskFile {
 public:
  explicit DiskFile(const std::filesystem::path& folder)
      : path_(folder / (".gputrain-bench-" + std::to_string(::getpid()))) {}
  DiskFile(const DiskFile&) = delete;
  DiskFile& operator=(const DiskFile&) = delete;
  ~DiskFile() { ::unlink(path_.c_str()); }

  /// Opens the file for writing; the caller closes it.
  int open() const {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC;
    int opened = ::open(path_.c_str(), kFlags | O_DIRECT, 0600);
    if (opened < 0 && errno == EINVAL) opened = ::open(path_.c_str(), kFlags, 0600);
    if (opened < 0) fail("open a file");
    return opened;
  }

  [[noreturn]] void fail(const char* action) const {
    throw Error(ExitCode::environment, {.what = std::string("cannot ") + action + ": " + std::strerror(errno),
                                        .where = path_.parent_path().string(),
                                        .hint = "free space there, or call it in another folder"});
  }

 private:
  std::filesystem::path path_;
};

}  // namespace

double time_matmul(const std::string& precision, int64_t size, at::Device device, double seconds) {
  const at::NoGradGuard no_grad;
  const auto kind = ops::precision_from_name(precision);
  device::apply({.tf32 = kind == ops::Precision::tf32, .deterministic = false}, device);
  const auto options = at::TensorOptions().dtype(ops::policy_of(kind).compute).device(device);
  const at::Tensor a = at::empty({size, size}, options).normal_(), b = at::empty({size, size}, options).normal_();
  const double each = median_seconds([&] { at::mm(a, b); }, device, seconds);
  const double n = static_cast<double>(size);
  return 2 * n * n * n / each;
}

std::vector<CopyRow> time_copies(int64_t bytes, at::Device device, double seconds) {
  const at::NoGradGuard no_grad;
  const auto on = [bytes](at::Device where, bool pinned) {
    const auto options = at::TensorOptions().dtype(at::kByte).device(where).pinned_memory(pinned);
    return at::empty({bytes}, options).fill_(1);
  };
  std::vector<CopyRow> rows;
  const auto time = [&](const std::string& what, const at::Tensor& from, const at::Tensor& to, double counted) {
    const double each = median_seconds([&] { to.copy_(from, /*non_blocking=*/true); }, device, seconds);
    rows.push_back({what, counted * static_cast<double>(bytes) / each});
  };
  const at::Tensor here = on(at::kCPU, false);
  time("memory to memory", here, on(at::kCPU, false), 2);
  if (device.is_cpu()) return rows;
  const at::Tensor there = on(device, false), pinned = on(at::kCPU, true);
  time("GPU to the same GPU", there, on(device, false), 2);
  time("pinned memory to GPU", pinned, there, 1);
  time("GPU to pinned memory", there, pinned, 1);
  time("pageable memory to GPU", here, there, 1);
  return rows;
}

double time_disk(const std::filesystem::path& folder, int64_t bytes, double seconds) {
  const DiskFile file(folder);
  const DiskBuffer buffer = disk_buffer();
  const int64_t most = std::max<int64_t>(1, bytes / static_cast<int64_t>(kDiskBlock));
  int64_t blocks = 0;
  const Descriptor output(file.open());
  const auto begin = MachineClock::now();
  for (; blocks < most && (blocks == 0 || seconds_since(begin) < seconds); ++blocks) {
    const ssize_t written = ::write(output.get(), buffer.get(), kDiskBlock);
    if (written >= 0 && written != static_cast<ssize_t>(kDiskBlock)) errno = ENOSPC;
    if (written != static_cast<ssize_t>(kDiskBlock)) file.fail("write");
  }
  if (::fsync(output.get()) != 0) file.fail("sync");
  return static_cast<double>(blocks) * static_cast<double>(kDiskBlock) / seconds_since(begin);
}

}  // namespace gputrain::app
