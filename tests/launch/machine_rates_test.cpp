#include "gputrain/launch/machine_rates.hpp"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace gputrain::launch {
namespace {

MachineRates machine(const std::string& kind, double product, double copy) {
  return {.kind = kind,
          .rates = {{.of = "cpu", .what = "product", .per_second = product},
                    {.of = "memory", .what = "copy", .per_second = copy}}};
}

TEST(MachineRates, AreWhollyFineAlone) { EXPECT_EQ(weakest_of(machine("a", 5, 6))->percent, 100); }

TEST(MachineRates, CompareWithTheBestKnown) {
  MachineRates known = machine("a", 5, 6);
  known.best = {{"product", 10}, {"copy", 6}};
  EXPECT_EQ(weakest_of(known)->rate.what, "product");
  EXPECT_EQ(weakest_of(known)->percent, 50);
}

TEST(MachineRates, CompareHostsOfOneKind) {
  std::vector<MachineRates> all{machine("a", 10, 6), machine("a", 10, 3), machine("b", 100, 100)};
  share_best(all);
  EXPECT_EQ(weakest_of(all[0])->percent, 100);
  EXPECT_EQ(weakest_of(all[1])->rate.of, "memory");
  EXPECT_EQ(weakest_of(all[1])->percent, 50);
  EXPECT_EQ(weakest_of(all[2])->percent, 100);
}

TEST(MachineRates, ShareWhatEachHasKnown) {
  std::vector<MachineRates> all{machine("a", 10, 6), machine("a", 10, 6)};
  all[1].best = {{"copy", 60}};
  share_best(all);
  EXPECT_EQ(weakest_of(all[0])->percent, 10);
}

TEST(MachineRates, CompareGpusOfOneMachine) {
  const MachineRates two{.kind = "2 GPUs",
                         .rates = {{.of = "gpu 0", .what = "product", .per_second = 100},
                                   {.of = "gpu 1", .what = "product", .per_second = 70}}};
  EXPECT_EQ(weakest_of(two)->rate.of, "gpu 1");
  EXPECT_EQ(weakest_of(two)->percent, 70);
}

TEST(MachineRates, SurviveJson) {
  MachineRates before = machine("a", 5, 6);
  before.best = {{"copy", 7}};
  const MachineRates after = machine_rates_of(nlohmann::json::parse(to_json(before).dump()));
  EXPECT_EQ(after.kind, "a");
  EXPECT_EQ(after.rates.at(1).per_second, 6);
  EXPECT_EQ(after.best.at("copy"), 7);
  EXPECT_THROW(machine_rates_of(nlohmann::json::parse("{}")), nlohmann::json::exception);
}

}  // namespace
}  // namespace gputrain::launch
