// The first lines of a run: what it will do.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "gputrain/monitor/console.hpp"
#include "gputrain/setup/training_setup.hpp"

namespace gputrain::app {

struct StartTexts {
  std::string hosts = {};   // empty: this machine and the ranks of the process group
  std::string memory = {};  // empty: only the memory that stays allocated all the time
  std::string saves;        // how often, if checkpoint.interval is auto
  std::string rate = {};    // the learning rate, if it is not the job's
  std::string cost = {};    // so far and of the whole run; empty: the price is unknown
  std::string resume;       // place from which the run starts
  std::string watch = {};   // address at which it can be watched; empty: none
  std::vector<std::pair<std::string, std::string>> trackers = {};  // their names, and where they show the run
};

/// Returns how the ranks are arranged, and whether the groups that talk most lie within hosts. `hosts`: those of the
/// ranks; empty: nobody knows.
std::string mesh_text(const comm::Mesh& mesh, const std::vector<std::string>& hosts);

void print_start_page(monitor::Console& console, const Job& job, const TrainingSetup& setup, const StartTexts& texts);

}  // namespace gputrain::app
