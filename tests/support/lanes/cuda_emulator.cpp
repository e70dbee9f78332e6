#include "support/lanes/cuda_emulator.hpp"

#include <stdexcept>

#include <sys/mman.h>
#include <ucontext.h>

#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif

// ThreadSanitizer must not see the emulator itself: its order of execution would hide races between kernel threads.
#define GPUTRAIN_UNSEEN __attribute__((no_sanitize("thread"), noinline))

namespace cuda_emulator {
namespace {

#if defined(__SANITIZE_THREAD__)
using Watcher = void*;
Watcher new_watcher() { return __tsan_create_fiber(0); }
Watcher this_watcher() { return __tsan_get_current_fiber(); }
void follow(Watcher watcher) { __tsan_switch_to_fiber(watcher, __tsan_switch_to_fiber_no_sync); }
void give(void* place) { __tsan_release(place); }
void take(void* place) { __tsan_acquire(place); }
/// Replaces memory with fresh pages at the same address.
void renew(char* memory, size_t bytes) {
  ::mmap(memory, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
}
#else
using Watcher = void*;
Watcher new_watcher() { return nullptr; }
Watcher this_watcher() { return nullptr; }
void follow(Watcher) {}
void give(void*) {}
void take(void*) {}
void renew(char*, size_t) {}
#endif

constexpr unsigned kWarp = 32, kMostThreads = 1024, kMostShared = 16;
constexpr size_t kStackBytes = 128 << 10, kSharedBytes = 48 << 10;

char* map_memory(size_t bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::runtime_error("no memory for the stacks of lanes");
  return static_cast<char*>(memory);
}

struct Barrier {
  unsigned expected = 0, arrived = 0, passed = 0;
  char places[2] = {};  // by parity: no thread is two barriers ahead of another
};

struct Lane {
  ucontext_t context{};
  Watcher watcher{};
  Dim index;
  unsigned number = 0;
  bool is_done = false;
};

struct Machine {
  ucontext_t main{};
  Watcher main_watcher{};
  Lane lanes[kMostThreads];
  Lane* current = nullptr;
  unsigned count = 0, left = 0;
  Dim block, blocks, threads;
  Barrier block_wide, warps[kMostThreads / kWarp];
  uint64_t exchanged[2][kMostThreads] = {};
  Watcher watchers[kMostThreads] = {};
  unsigned first_watcher = 0;
  unsigned fruitless = 0;  // turns since the last progress
  const std::function<void()>* body = nullptr;
  std::string failure;
  char* stacks = map_memory(kMostThreads * kStackBytes);
  char* shared = map_memory(kSharedBytes);
  struct {
    const void* name;
    char* memory;
  } shared_names[kMostShared] = {};
  unsigned shared_count = 0;
  size_t shared_used = 0;
  char start = 0, end = 0;
};

Machine& machine() {
  static Machine* const one = new Machine;
  return *one;
}

GPUTRAIN_UNSEEN void switch_to(Lane* lane) {
  Machine& m = machine();
  ucontext_t* const from = m.current != nullptr ? &m.current->context : &m.main;
  m.current = lane;
  follow(lane != nullptr ? lane->watcher : m.main_watcher);
  ::swapcontext(from, lane != nullptr ? &lane->context : &m.main);
}

GPUTRAIN_UNSEEN void next_lane() {
  Machine& m = machine();
  for (unsigned i = 1; i <= m.count; ++i) {
    Lane& lane = m.lanes[(m.current->number + i) % m.count];
    if (!lane.is_done) return switch_to(&lane);
  }
  switch_to(nullptr);
}

GPUTRAIN_UNSEEN void lane_main() {
  Machine& m = machine();
  take(&m.start);
  (*m.body)();
  give(&m.end);
  m.current->is_done = true;
  --m.left;
  m.fruitless = 0;
  next_lane();
}

/// Waits until all threads of the barrier have arrived.
GPUTRAIN_UNSEEN void wait_at(Barrier& barrier, bool orders_memory) {
  Machine& m = machine();
  const unsigned turn = barrier.passed;
  if (orders_memory) give(&barrier.places[turn % 2]);
  if (++barrier.arrived == barrier.expected) {
    barrier.arrived = 0;
    ++barrier.passed;
    m.fruitless = 0;
  }
  while (barrier.passed == turn) {
    if (++m.fruitless > 2 * m.count) {
      fail("threads wait at a barrier or a shuffle that " + std::to_string(barrier.expected - barrier.arrived) +
           " others do not come to");
    }
    next_lane();
  }
  if (orders_memory) take(&barrier.places[turn % 2]);
}

GPUTRAIN_UNSEEN void poison(char* memory, size_t bytes) {
  for (size_t i = 0; i < bytes; ++i) reinterpret_cast<volatile char*>(memory)[i] = static_cast<char>(0xFF);
}

GPUTRAIN_UNSEEN void prepare(Lane& lane, unsigned number, const Dim& threads) {
  Machine& m = machine();
  lane.number = number;
  lane.index = {number % threads.x, number / threads.x % threads.y, number / threads.x / threads.y};
  lane.is_done = false;
  Watcher& watcher = m.watchers[(m.first_watcher + number) % kMostThreads];
  if (watcher == nullptr) watcher = new_watcher();
  lane.watcher = watcher;
  ::getcontext(&lane.context);
  lane.context.uc_stack.ss_sp = m.stacks + number * kStackBytes;
  lane.context.uc_stack.ss_size = kStackBytes;
  lane.context.uc_link = nullptr;
  ::makecontext(&lane.context, lane_main, 0);
}

/// Blocks must be unordered, so each gets fresh stacks and fresh shared memory. ThreadSanitizer's fibers are expensive
/// to create and order their own accesses, so they are reused, shifted by one lane per block.
GPUTRAIN_UNSEEN void run_block() {
  Machine& m = machine();
  renew(m.stacks, m.count * kStackBytes);
  renew(m.shared, kSharedBytes);
  poison(m.shared, kSharedBytes);
  give(&m.start);
  m.shared_count = 0;
  m.shared_used = 0;
  ++m.first_watcher;
  m.left = m.count;
  m.fruitless = 0;
  m.block_wide = {.expected = m.count};
  for (unsigned warp = 0; warp < m.count / kWarp; ++warp) m.warps[warp] = {.expected = kWarp};
  for (unsigned i = 0; i < m.count; ++i) prepare(m.lanes[i], i, m.threads);
  switch_to(&m.lanes[0]);
  for (unsigned i = 0; i < m.count; ++i) {
    if (m.lanes[i].is_done) continue;  // after a failure the others have not ended
    follow(m.lanes[i].watcher);
    give(&m.end);
    follow(m.main_watcher);
  }
}

}  // namespace

GPUTRAIN_UNSEEN void run(const Dim& blocks, const Dim& threads, const std::function<void()>& thread) {
  Machine& m = machine();
  m.count = threads.x * threads.y * threads.z;
  if (m.count == 0 || m.count > kMostThreads || m.count % kWarp != 0 || blocks.x * blocks.y * blocks.z == 0) {
    throw std::runtime_error("a launch of " + std::to_string(m.count) + " threads in " +
                             std::to_string(blocks.x * blocks.y * blocks.z) + " blocks");
  }
  if (blocks.y > 65535 || blocks.z > 65535) throw std::runtime_error("more than 65535 blocks along y or z");
  m.main_watcher = this_watcher();
  m.threads = threads;
  m.blocks = blocks;
  m.body = &thread;
  m.failure.clear();
  for (m.block.z = 0; m.block.z < blocks.z; ++m.block.z) {
    for (m.block.y = 0; m.block.y < blocks.y; ++m.block.y) {
      for (m.block.x = 0; m.block.x < blocks.x; ++m.block.x) {
        run_block();
        if (!m.failure.empty()) {
          take(&m.end);
          throw std::runtime_error(m.failure);
        }
      }
    }
  }
  take(&m.end);
}

GPUTRAIN_UNSEEN void fail(const std::string& what) {
  Machine& m = machine();
  if (m.current == nullptr) throw std::runtime_error(what);
  m.failure = what + ", thread " + std::to_string(m.current->number) + " of block " + std::to_string(m.block.x) + "," +
              std::to_string(m.block.y) + "," + std::to_string(m.block.z);
  switch_to(nullptr);  // abandons the fibers: kernels own no resources
  __builtin_unreachable();
}

GPUTRAIN_UNSEEN const Dim& thread_index() { return machine().current->index; }
GPUTRAIN_UNSEEN const Dim& block_index() { return machine().block; }
GPUTRAIN_UNSEEN const Dim& block_size() { return machine().threads; }
GPUTRAIN_UNSEEN const Dim& grid_size() { return machine().blocks; }

GPUTRAIN_UNSEEN void block_barrier() { wait_at(machine().block_wide, true); }
GPUTRAIN_UNSEEN void warp_barrier() { wait_at(machine().warps[machine().current->number / kWarp], true); }

GPUTRAIN_UNSEEN uint64_t exchange(uint64_t value, unsigned bits) {
  Machine& m = machine();
  const unsigned number = m.current->number, warp = number / kWarp;
  uint64_t* const values = m.exchanged[m.warps[warp].passed % 2];
  values[number] = value;
  wait_at(m.warps[warp], false);  // a shuffle does not order memory
  return values[warp * kWarp + ((number ^ bits) % kWarp)];
}

GPUTRAIN_UNSEEN void* shared_bytes(const void* name, size_t bytes) {
  Machine& m = machine();
  for (unsigned i = 0; i < m.shared_count; ++i) {
    if (m.shared_names[i].name == name) return m.shared_names[i].memory;
  }
  char* const memory = m.shared + m.shared_used;
  m.shared_used += (bytes + 15) / 16 * 16;
  if (m.shared_used > kSharedBytes) fail("more than 48 KiB of shared memory");
  if (m.shared_count == kMostShared) fail("more pieces of shared memory than are kept");
  m.shared_names[m.shared_count++] = {name, memory};
  return memory;
}

}  // namespace cuda_emulator
