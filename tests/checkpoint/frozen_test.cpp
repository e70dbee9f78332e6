#include "gputrain/checkpoint/frozen.hpp"

#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include "store_fixture.hpp"

namespace gputrain::checkpoint {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<FrozenWeights> frozen_of(double value) {
  return std::make_shared<FrozenWeights>(
      NamedTensors{{"f", at::full({5}, value, at::kBFloat16)}, {"g", at::ones({2, 3})}}, "seed 1");
}

class FrozenInStore : public StoreFixture {
 protected:
  void save(int64_t step, const std::shared_ptr<FrozenWeights>& frozen) {
    store_.save({.step = step, .files = {{"model", {{"w", at::full({3}, 1.0)}}}}, .frozen = frozen, .state = "{}"});
  }
  fs::path file(const std::shared_ptr<FrozenWeights>& frozen) const { return folder_ / frozen->note().file_name(); }
  fs::path folder_of(int64_t step) const { return store_.folder() / folder_name(step); }
  Checkpoint checkpoint(int64_t step) const { return Checkpoint::open(folder_of(step)); }

  CheckpointStore store_{folder_, {.keep_last = 2}};
};

TEST_F(FrozenInStore, LieOnceAndBelongToTheModelOfEachCheckpoint) {
  const auto frozen = frozen_of(0.5);
  save(1, frozen);
  const auto written = fs::last_write_time(file(frozen));
  save(2, frozen);
  save(3, frozen_of(0.5));  // another attempt
  EXPECT_EQ(fs::last_write_time(file(frozen)), written);
  const Checkpoint saved = checkpoint(3);
  EXPECT_TRUE(saved.part("model").tensor("f").equal(at::full({5}, 0.5, at::kBFloat16)));
  EXPECT_EQ(saved.part("model").names(), (std::vector<std::string>{"f", "g", "w"}));
  const Frozen& note = saved.manifest().frozen.value();
  EXPECT_EQ(note.tensors.at("f").dtype, "BF16");
  EXPECT_EQ(note.tensors.at("g").shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(note.tensors, frozen->note().tensors);
  EXPECT_NE(frozen_of(0.25)->note().tensors.at("f"), note.tensors.at("f"));
  EXPECT_EQ(frozen_of(0.25)->note().tensors.at("g"), note.tensors.at("g"));
}

TEST_F(FrozenInStore, AreLetGoOnceWrittenWhereTheyAreCopies) {
  at::Tensor copy = at::full({5}, 0.5);
  const auto frozen =
      std::make_shared<FrozenWeights>(NamedTensors{{"f", copy}}, "seed 1", FrozenWeights::Kept::until_written);
  EXPECT_EQ(frozen->note().tensors.at("f"), note_of(copy));
  EXPECT_GT(copy.use_count(), 1);
  save(1, frozen);
  EXPECT_EQ(copy.use_count(), 1);
  save(2, frozen);
  EXPECT_TRUE(frozen->is_at_hand());
  EXPECT_TRUE(checkpoint(2).part("model").tensor("f").equal(copy));
  fs::remove(file(frozen));
  EXPECT_FALSE(frozen->is_at_hand());
  EXPECT_THROW(save(3, frozen), Error);
}

TEST_F(FrozenInStore, StayAsLongAsACheckpointNamesThem) {
  const auto first = frozen_of(1), second = frozen_of(2);
  save(1, first);
  save(2, second);
  save(3, second);
  EXPECT_FALSE(fs::exists(file(first)));
  EXPECT_TRUE(fs::exists(file(second)));
  fs::rename(folder_of(3), folder_of(3).string() + ".left");  // may be wanted again
  save(4, first);
  save(5, first);
  save(6, first);
  EXPECT_TRUE(fs::exists(file(first)));
  EXPECT_TRUE(fs::exists(file(second)));
}

TEST_F(FrozenInStore, AreWrittenAnewWhereTheFileIsDamaged) {
  const auto frozen = frozen_of(1);
  save(1, frozen);
  const std::string good = content_of(file(frozen));
  std::string bad = good;
  bad.back() ^= 1;
  overwrite(file(frozen), bad);
  EXPECT_THROW(checkpoint(1), Unreadable);
  EXPECT_THROW(Checkpoint::look_into(folder_of(1)).part("model").read({}, 0), Unreadable);
  save(2, frozen_of(1));
  EXPECT_EQ(content_of(file(frozen)), good);
  EXPECT_NO_THROW(checkpoint(1));
}

TEST_F(FrozenInStore, AreFoundInTheCheckpointsFolderToo) {
  const auto frozen = frozen_of(1);
  save(1, frozen);
  const fs::path elsewhere = folder_.string() + "_elsewhere";
  fs::copy(folder_of(1), elsewhere);
  try {
    Checkpoint::open(elsewhere);
    ADD_FAILURE() << "opened";
  } catch (const Unreadable& error) {
    EXPECT_THAT(error.what(), HasSubstr("frozen weights"));
    EXPECT_THAT(error.what(), HasSubstr("from seed 1"));
  }
  fs::copy(file(frozen), elsewhere);
  EXPECT_NO_THROW(Checkpoint::open(elsewhere.string() + "/"));
  fs::remove_all(elsewhere);
}

TEST_F(FrozenInStore, HaveANameThatStaysBesideTheCheckpoint) {
  save(1, frozen_of(1));
  const fs::path path = folder_of(1) / kManifestName;
  nlohmann::json manifest = nlohmann::json::parse(content_of(path));
  manifest["frozen"]["xxh3_128"] = "/../../secret";
  write_sealed_manifest(path, manifest);
  EXPECT_THROW(Checkpoint::look_into(folder_of(1)), Damage);
  manifest["frozen"]["xxh3_128"] = "0";
  manifest["frozen"]["tensors"]["f"]["shape"] = -1;
  write_sealed_manifest(path, manifest);
  EXPECT_THROW(Checkpoint::look_into(folder_of(1)), Damage);
}

}  // namespace
}  // namespace gputrain::checkpoint
