// ATen's memory for CPU tensors: large blocks are kept and used again, a quarter above the most in use at a time.
//
// Training allocates the same activations every step. malloc either hands them back to the kernel, which then zeroes
// every page anew, or keeps them in a heap that fragments. Here a freed block waits for the next request of about its
// size, and is given back as soon as kept and used blocks together would exceed the most that was ever in use by more
// than a quarter, or by more than half of the memory that is free. (Exactly at it, a step's blocks would be traded for
// each other at its height, page by page.)
#pragma once

#include <cstdint>

namespace gputrain::device {

struct HostAllocatorFacts {
  int64_t in_use_bytes = 0;       // large blocks that tensors hold
  int64_t kept_bytes = 0;         // large blocks that wait to be used again
  int64_t peak_in_use_bytes = 0;  // five quarters of it bound the sum of both
  int64_t requests = 0;           // for large blocks
  int64_t reused = 0;             // of them, met without asking the kernel
};

/// Puts this allocator in place of ATen's for the rest of the process. Tensors made before stay valid. `processes` like
/// this one share what memory is free.
void install_host_allocator(int processes = 1);

HostAllocatorFacts host_allocator_facts();

/// Gives the kept blocks back to the kernel, for what it hands out itself: stacks of threads, for instance.
void give_back_kept_blocks();

/// Gives the kept blocks back and forgets the peak: what is held now is the most there ever was.
void forget_host_peak();

}  // namespace gputrain::device
