// What this program is and what it was built with.
#pragma once

#include <map>
#include <string>

#include <c10/core/Device.h>

#include "gputrain/job/version.hpp"

namespace gputrain::app {

std::string torch_version();  // "torch 2.11.0"
/// Of what decides the last bits of results: "gputrain", "torch", and on a GPU "device" software.
std::map<std::string, std::string> versions(at::Device device);
std::string versions_text();  // lines for `gputrain version`

}  // namespace gputrain::app
