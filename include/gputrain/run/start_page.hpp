// The first lines of a run: what will happen, before it happens.
#pragma once

#include <string>

#include "gputrain/monitor/console.hpp"
#include "gputrain/setup/assembly.hpp"

namespace gputrain::app {

struct StartTexts {
  std::string hosts = {};   // where, if not here and with those whom the rank has met
  std::string memory = {};  // if more is known than what is fixed
  std::string saves;        // how often, where checkpoint.interval is auto
  std::string resume;       // where the run starts from, as Checkpointing tells it
};

void print_start_page(monitor::Console& console, const Job& job, const Assembly& assembly, const StartTexts& texts);

}  // namespace gputrain::app
