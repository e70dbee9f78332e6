#include "gputrain/device/host_allocator.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "gputrain/device/host.hpp"
#include "gputrain/device/out_of_memory.hpp"

namespace gputrain::device {
namespace {

constexpr size_t kAlignment = 64;                  // for ATen's vector code
constexpr size_t kLargeBytes = size_t{256} << 10;  // below, malloc is fast and wastes less than whole pages
constexpr size_t kHugePageBytes = size_t{2} << 20;

size_t page_bytes() {
  static const auto bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  return bytes;
}

void* map_anonymous(size_t bytes) {
  return ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/// Memory mappings by size: those in use, and those kept for reuse.
class LargeBlocks {
 public:
  void share_memory(int processes) {
    const std::lock_guard lock(mutex_);
    processes_ = std::max(1, processes);
  }

  void* take(size_t bytes) {
    const size_t size = (bytes + page_bytes() - 1) / page_bytes() * page_bytes();
    const std::lock_guard lock(mutex_);
    ++facts_.requests;
    void* block = take_kept(size);
    if (block == nullptr) block = map_new(size);
    facts_.peak_in_use_bytes = std::max(facts_.peak_in_use_bytes, facts_.in_use_bytes);
    return block;
  }

  /// Returns false if the block is not ours.
  bool give_back(void* block) {
    const std::lock_guard lock(mutex_);
    const auto found = in_use_.find(block);
    if (found == in_use_.end()) return false;
    const size_t size = found->second;
    in_use_.erase(found);
    kept_.emplace(size, Kept{block, ++clock_});
    facts_.in_use_bytes -= static_cast<int64_t>(size);
    facts_.kept_bytes += static_cast<int64_t>(size);
    return true;
  }

  void give_back_kept() {
    const std::lock_guard lock(mutex_);
    while (!kept_.empty()) give_back_longest_unused();
  }

  void forget_peak() {
    give_back_kept();
    const std::lock_guard lock(mutex_);
    facts_.peak_in_use_bytes = facts_.in_use_bytes;
    spare_until_ = 0;
  }

  HostAllocatorFacts facts() {
    const std::lock_guard lock(mutex_);
    return facts_;
  }

 private:
  struct Kept {
    void* block;
    uint64_t since;
  };
  using Shelf = std::multimap<size_t, Kept>;

  void hand_out(void* block, size_t size) {
    in_use_.emplace(block, size);
    facts_.in_use_bytes += static_cast<int64_t>(size);
  }

  // Accepts a block up to 1/8 larger: more would waste memory, less would miss requests that vary a little.
  void* take_kept(size_t size) {
    const auto found = kept_.lower_bound(size);
    if (found == kept_.end() || found->first > size + size / 8) return nullptr;
    void* block = found->second.block;
    const size_t actual = found->first;
    kept_.erase(found);
    facts_.kept_bytes -= static_cast<int64_t>(actual);
    hand_out(block, actual);
    ++facts_.reused;
    return block;
  }

  void* map_new(size_t size) {
    make_room(static_cast<int64_t>(size));
    void* block = map_anonymous(size);
    while (block == MAP_FAILED && !kept_.empty()) {
      give_back_longest_unused();
      block = map_anonymous(size);
    }
    if (block == MAP_FAILED) throw OutOfMemory(static_cast<int64_t>(size));
    if (size >= kHugePageBytes) ::madvise(block, size, MADV_HUGEPAGE);
    hand_out(block, size);
    return block;
  }

  // Unmaps the longest unused blocks until the new one fits.
  void make_room(int64_t size) {
    while (!kept_.empty() && !may_hold(facts_.in_use_bytes + facts_.kept_bytes + size)) give_back_longest_unused();
  }

  // Allows more than the peak, so that blocks of other sizes, needed at other times of a step, do not replace each
  // other at the peak. Takes only memory that is free, because the kernel kills processes when it runs out.
  bool may_hold(int64_t bytes) {
    const int64_t peak = facts_.peak_in_use_bytes;
    if (bytes <= peak) return true;
    if (bytes > peak + peak / 4) return false;
    if (bytes > spare_until_) {
      spare_until_ = facts_.in_use_bytes + facts_.kept_bytes + available_host_bytes() / (2 * processes_);
    }
    return bytes <= spare_until_;
  }

  void give_back_longest_unused() {
    const auto oldest = std::min_element(kept_.begin(), kept_.end(),
                                         [](const auto& a, const auto& b) { return a.second.since < b.second.since; });
    ::munmap(oldest->second.block, oldest->first);
    facts_.kept_bytes -= static_cast<int64_t>(oldest->first);
    kept_.erase(oldest);
  }

  std::mutex mutex_;
  std::unordered_map<void*, size_t> in_use_;
  Shelf kept_;
  uint64_t clock_ = 0;
  int processes_ = 1;
  int64_t spare_until_ = 0;  // limit for in use + kept: with half of the free memory at the last check
  HostAllocatorFacts facts_;
};

// Never destroyed: tensors in static storage free their memory after our destructors have run.
LargeBlocks& large_blocks() {
  static auto* blocks = new LargeBlocks;
  return *blocks;
}

bool may_be_large(const void* block) { return reinterpret_cast<uintptr_t>(block) % page_bytes() == 0; }

void release(void* block) {
  if (block == nullptr) return;
  if (may_be_large(block) && large_blocks().give_back(block)) return;
  std::free(block);
}

void* obtain(size_t bytes) {
  if (bytes == 0) return nullptr;
  if (bytes >= kLargeBytes) return large_blocks().take(bytes);
  void* block = nullptr;
  if (::posix_memalign(&block, kAlignment, bytes) != 0) throw OutOfMemory(static_cast<int64_t>(bytes));
  return block;
}

class HostAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    void* block = obtain(bytes);
    return {block, block, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void* to, const void* from, size_t bytes) const override { std::memcpy(to, from, bytes); }
};

}  // namespace

void install_host_allocator(int processes) {
  large_blocks().share_memory(processes);
  static auto* allocator = new HostAllocator;  // like the blocks, it outlives every tensor
  constexpr uint8_t kAboveDefault = 1;
  c10::SetCPUAllocator(allocator, kAboveDefault);
}

HostAllocatorFacts host_allocator_facts() { return large_blocks().facts(); }
void give_back_kept_blocks() { large_blocks().give_back_kept(); }
void forget_host_peak() { large_blocks().forget_peak(); }

}  // namespace gputrain::device
