// Runs of jobs in a folder of the test, on one thread.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/program.hpp"

namespace gputrain::testing_support {

inline const std::map<std::string, std::string> kOneThread{{"OMP_NUM_THREADS", "1"}};

class JobRuns : public ::testing::Test {
 protected:
  /// Trains into the folder `name` of the test's own.
  Result run(const std::string& job, const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> words{"run", job, "--output-dir", folder_ / name};
    words.insert(words.end(), more.begin(), more.end());
    return gputrain(words, kOneThread);
  }
  /// The last metrics of such a run.
  nlohmann::json metrics(const std::string& name) const {
    return nlohmann::json::parse(read_file(folder_ / name + "/summary.json"))["metrics"];
  }

  TemporaryFolder folder_;
};

}  // namespace gputrain::testing_support
