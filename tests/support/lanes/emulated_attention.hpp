#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gputrain::testing_support {

/// False: simulates that cuDNN has no kernel for the gradient of attention.
extern bool has_attention_gradient;

/// The graphs of texts that ran: "16 of 128 in 24", the limits of texts, their length and all rows.
extern std::vector<std::string> texts_graphs;
/// Graphs of more rows find no memory.
extern int64_t most_rows_of_texts;

/// The compute capability's major number. Only tests that call no operator of ATen for GPUs set one.
extern int emulated_capability;

}  // namespace gputrain::testing_support
