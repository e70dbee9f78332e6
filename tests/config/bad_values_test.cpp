#include "config/bad_values.hpp"

#include <set>

#include <gtest/gtest.h>

#include "config/sample_job.hpp"

namespace gputrain::config {
namespace {

TEST(BadValues, AreRefusedForEveryKey) {
  const std::vector<BadValue> all = BadValues::of(schema_of<SampleJob>());
  for (const BadValue& bad : all) {
    EXPECT_TRUE(is_refused(schema_of<SampleJob>(), {.file = "job.yaml", .text = kGoodJob}, bad)) << bad.set.back();
  }
}

TEST(BadValues, AreMadeForEveryKeyAndEntry) {
  std::set<std::string> wrong, range, spelling;
  for (const BadValue& bad : BadValues::of(schema_of<SampleJob>())) {
    (bad.kind == "wrong type" ? wrong : bad.kind == "out of range" ? range : spelling).insert(bad.place);
  }
  for (const char* key : {"seed", "model.type", "model.config.widths", "model.config.n_layer", "data.train.invert",
                          "data.val.unit", "optimizer.momentum", "train.ema", "train.ema.decay", "expect.val/loss"}) {
    EXPECT_TRUE(wrong.contains(key)) << key;
  }
  for (const char* key : {"seed", "model.type", "optimizer.lr", "train.nonfinite", "data.num_workers"}) {
    EXPECT_TRUE(range.contains(key)) << key;
  }
  EXPECT_TRUE(spelling.contains("optimizer.lrr"));
}

}  // namespace
}  // namespace gputrain::config
