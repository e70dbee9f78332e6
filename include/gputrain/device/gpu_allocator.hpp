// Settings of ATen's GPU memory allocator, in the syntax of PYTORCH_ALLOC_CONF: "expandable_segments:True".
#pragma once

#include <string>
#include <string_view>

namespace gputrain::device {

/// Describes what is wrong with the settings; empty if they are valid. Needs neither a GPU nor a CUDA build.
std::string problem_of_allocator_settings(std::string_view settings);

/// Applies the settings, which override the environment. Call before the first tensor on a GPU. Does nothing in a build
/// without CUDA. Throws Error(usage) if the allocator refuses them.
void set_gpu_allocator(const std::string& settings);

}  // namespace gputrain::device
