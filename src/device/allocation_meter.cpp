#include "gputrain/device/allocation_meter.hpp"

#include <algorithm>
#include <mutex>
#include <unordered_map>

#include <c10/core/Allocator.h>
#include <c10/core/CPUAllocator.h>

#include "gputrain/core/error.hpp"

namespace gputrain::device {
namespace {

/// Forwards every request to the previous allocator and records it while a meter exists.
class MeteredAllocator final : public c10::Allocator {
 public:
  explicit MeteredAllocator(c10::Allocator& behind) : behind_(behind) {}

  c10::DataPtr allocate(size_t bytes) override {
    void* block = behind_.raw_allocate(bytes);
    note_taken(block, static_cast<int64_t>(bytes));
    return {block, block, raw_deleter(), c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override;
  void copy_data(void* to, const void* from, size_t bytes) const override { behind_.copy_data(to, from, bytes); }

  void count(bool on) {
    const std::lock_guard lock(mutex_);
    GPUTRAIN_ASSERT(counting_ != on, "one meter at a time");
    counting_ = on;
    blocks_.clear();
    live_ = peak_ = 0;
  }
  int64_t live() {
    const std::lock_guard lock(mutex_);
    return live_;
  }
  int64_t peak() {
    const std::lock_guard lock(mutex_);
    return peak_;
  }

  void give_back(void* block) {
    {
      const std::lock_guard lock(mutex_);
      const auto found = blocks_.find(block);
      if (found != blocks_.end()) {
        live_ -= found->second;
        blocks_.erase(found);
      }
    }
    behind_.raw_deallocate(block);
  }

 private:
  void note_taken(void* block, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (!counting_ || block == nullptr) return;
    blocks_[block] = bytes;
    live_ += bytes;
    peak_ = std::max(peak_, live_);
  }

  c10::Allocator& behind_;
  std::mutex mutex_;
  std::unordered_map<void*, int64_t> blocks_;
  bool counting_ = false;
  int64_t live_ = 0, peak_ = 0;
};

// Never destroyed: tensors in static storage free their memory after our destructors have run.
MeteredAllocator& metered_allocator() {
  static auto* allocator = [] {
    constexpr uint8_t kAboveOurs = 2;
    auto* made = new MeteredAllocator(*c10::GetCPUAllocator());
    c10::SetCPUAllocator(made, kAboveOurs);
    return made;
  }();
  return *allocator;
}

void give_back_metered(void* block) { metered_allocator().give_back(block); }

c10::DeleterFnPtr MeteredAllocator::raw_deleter() const { return &give_back_metered; }

}  // namespace

AllocationMeter::AllocationMeter() { metered_allocator().count(true); }
AllocationMeter::~AllocationMeter() { metered_allocator().count(false); }
int64_t AllocationMeter::live_bytes() const { return metered_allocator().live(); }
int64_t AllocationMeter::peak_bytes() const { return metered_allocator().peak(); }

}  // namespace gputrain::device
