// Versions of this program and of its libraries.
#pragma once

#include <map>
#include <string>

#include <c10/core/Device.h>

#include "gputrain/job/version.hpp"

namespace gputrain::app {

std::string torch_version();  // returns "torch 2.11.0"
/// Returns versions of everything that affects the last bits of results: "gputrain", "torch", on a GPU "device"
/// software, and "plugin libtiny_mixer.so" for each plug-in.
std::map<std::string, std::string> versions(at::Device device);
std::string versions_text();  // returns lines for `gputrain version`

}  // namespace gputrain::app
