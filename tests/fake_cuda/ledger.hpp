// A ledger of what the program asks of the fake GPU: a line of JSON for each kernel, product, convolution, copy and
// fill in the file PRETEND_GPU_LEDGER, with its cost counted from shapes. scripts/gpu/ledger.py adds it up.
#pragma once

#include <cstddef>
#include <string>

namespace gputrain::fake_cuda {

/// What a call costs a GPU.
struct Cost {
  std::string kind;  // "ours norm_forward", "product", "cudnn", "attention", "copy", ...; empty: a kernel of LibTorch,
                     // whose operator's tensors say what it costs
  double bytes = 0;  // read and written
  double operations = 0;  // multiplications and additions of matrix units
  double places = 0;      // for texts beside each other: places for tokens that bytes and operations are of
};

bool keeps_ledger();
/// Notes a call that runs now, or at each launch of `graph`. Several threads may call it.
void note_call(const std::string& name, const Cost& cost, const void* graph);
void note_launch(const void* graph);
/// A clock that only calls advance, by 1 each; by 2 for kernels of LibTorch, so that a way of ours wins a trial that
/// takes the same number of calls. The fraction counts bytes: of two ways with as many calls, the one of fewer bytes
/// wins.
double milliseconds_of_calls();

/// The cost of a kernel of ours by its mangled name and arguments. Kind is empty for a kernel that is not ours; throws
/// std::logic_error for one of ours without a formula.
Cost cost_of_kernel(const std::string& name, void** arguments);

}  // namespace gputrain::fake_cuda
