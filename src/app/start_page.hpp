// The first lines of a run: what will happen, before it happens.
#pragma once

#include <string>

#include "assembly.hpp"
#include "gputrain/monitor/console.hpp"

namespace gputrain::app {

struct StartPage {
  const Job& job;
  const Place& place;
  const Datasets& datasets;
  const BuiltModel& built;
  const train::Plan& plan;
  const Updates& updates;
  std::string resume;  // "none found in runs/x/ckpt", "step 500 of runs/x/ckpt/step-00000500"
};

void print_start_page(monitor::Console& console, const StartPage& page);

}  // namespace gputrain::app
