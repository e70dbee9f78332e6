// ATen's allocator for CPU tensors: keeps large freed blocks for reuse, up to a quarter above the peak in use.
//
// Training allocates the same activations every step. malloc either returns them to the kernel, which zeroes each page
// again, or keeps them in a heap that fragments. This allocator keeps a freed block for the next request of about its
// size. It unmaps kept blocks if used and kept blocks together would exceed the peak in use by more than a quarter, or
// by more than half of the free memory. (With a limit of exactly the peak, blocks of different sizes would replace each
// other at the peak of every step, page by page.)
#pragma once

#include <cstdint>

namespace gputrain::device {

struct HostAllocatorFacts {
  int64_t in_use_bytes = 0;       // large blocks in use by tensors
  int64_t kept_bytes = 0;         // large blocks kept for reuse
  int64_t peak_in_use_bytes = 0;  // the sum of both is at most 5/4 of it
  int64_t requests = 0;           // number of requests for large blocks
  int64_t reused = 0;             // number of them served from kept blocks
};

/// Replaces ATen's CPU allocator for the rest of the process. Existing tensors stay valid. `processes`: how many
/// processes like this one share the free memory.
void install_host_allocator(int processes = 1);

HostAllocatorFacts host_allocator_facts();

/// Unmaps all kept blocks, so that the kernel can use the memory, for example for thread stacks.
void give_back_kept_blocks();

/// Unmaps all kept blocks and resets the peak to the bytes in use.
void forget_host_peak();

}  // namespace gputrain::device
