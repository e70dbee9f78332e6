// cuDNN's backend descriptors on the fake GPU, and what the operations of a plan cost.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "ledger.hpp"

namespace gputrain::fake_cuda {

struct Bag {
  int type = 0;
  std::map<int, std::pair<int64_t, std::vector<char>>> attributes;  // number of values, and their bytes
  std::vector<Bag*> others = {};  // descriptors it holds, or that it was answered from
};

Cost cost_of_plan(const Bag& plan);

}  // namespace gputrain::fake_cuda
