// Settings of ATen's memory allocator for GPUs, in the words of PYTORCH_ALLOC_CONF: "expandable_segments:True".
#pragma once

#include <string>
#include <string_view>

namespace gputrain::device {

/// What is wrong with them, empty: nothing. Asks no GPU and no CUDA: any build knows the settings.
std::string problem_of_allocator_settings(std::string_view settings);

/// Gives them to the allocator, over what the environment says; before the first tensor on a GPU. Without CUDA in the
/// build there is nothing to give them to. Throws Error(usage) for what the allocator refuses.
void set_gpu_allocator(const std::string& settings);

}  // namespace gputrain::device
