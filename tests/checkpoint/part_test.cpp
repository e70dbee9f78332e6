#include "gputrain/checkpoint/part.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/store.hpp"
#include "store_fixture.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kRows = 30, kColumns = 7, kBiases = 13;
constexpr int64_t kFlat = kRows * kColumns + kBiases;  // both in one flat buffer, as in an arena

/// Range of a flat buffer that rank `rank` of `ranks` owns.
std::pair<int64_t, int64_t> range_of(int64_t rank, int64_t ranks) {
  return {kFlat * rank / ranks, kFlat * (rank + 1) / ranks};
}

/// The slices of both tensors within a range of the flat buffer, with views of `flat`.
std::vector<Part::Target> targets_in(const at::Tensor& flat, int64_t begin, int64_t end) {
  std::vector<Part::Target> targets;
  const auto add = [&](const std::string& name, std::vector<int64_t> shape, int64_t first, int64_t last) {
    const int64_t from = std::max(begin, first), until = std::min(end, last);
    if (from >= until) return;
    targets.push_back({name, flat.slice(0, from - begin, until - begin), Slice{std::move(shape), from - first}});
  };
  add("exp_avg.weight", {kRows, kColumns}, 0, kRows * kColumns);
  add("exp_avg.bias", {kBiases}, kRows * kColumns, kFlat);
  return targets;
}

Shard shard_of(const at::Tensor& whole, int64_t rank, int64_t ranks) {
  const auto [begin, end] = range_of(rank, ranks);
  Shard shard{.part = "optimizer", .rank = rank, .ranks = ranks, .tensors = {}, .slices = {}};
  for (const Part::Target& target : targets_in(whole.slice(0, begin, end), begin, end)) {
    shard.tensors.emplace_back(target.name, target.tensor);
    shard.slices[target.name] = *target.slice;
  }
  if (rank == 0) shard.tensors.emplace_back("step", at::full({}, 5.0));
  return shard;
}

class PartTest : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }

  /// Saves a checkpoint whose optimizer state is sharded over four ranks.
  void save_four_ranks() {
    Snapshot snapshot{.step = 8, .state = "{}"};
    for (int64_t rank = 0; rank < 4; ++rank) snapshot.shards.push_back(shard_of(state_, rank, 4));
    snapshot.origin.world_size = 4;
    CheckpointStore(folder_).save(snapshot);
  }
  Part optimizer() const { return CheckpointStore(folder_).find_newest().newest->part("optimizer"); }
  fs::path file_of(int64_t rank) const { return folder_ / "step-00000008" / file_name("optimizer", rank, 4); }
  std::string rejection() const {
    const auto search = CheckpointStore(folder_).find_newest();
    return search.rejected.empty() ? "accepted" : search.rejected[0].reason;
  }
  void edit_manifest(const std::function<void(nlohmann::json&)>& edit) {
    const fs::path path = folder_ / "step-00000008/manifest.json";
    nlohmann::json manifest = nlohmann::json::parse(std::ifstream(path));
    edit(manifest);
    write_sealed_manifest(path, std::move(manifest));
  }

  const fs::path folder_ = fs::temp_directory_path() / ("gputrain_part_" + std::to_string(::getpid()));
  const at::Tensor state_ = at::arange(kFlat).to(at::kFloat);
};

TEST_F(PartTest, LoadsFourRanksOnAnyRankCount) {
  save_four_ranks();
  const Part part = optimizer();
  for (const int64_t ranks : {1, 2, 3, 4, 7}) {
    std::vector<at::Tensor> flats;
    for (int64_t rank = 0; rank < ranks; ++rank) {
      const auto [begin, end] = range_of(rank, ranks);
      flats.push_back(at::full({end - begin}, -1.0));
      part.read(targets_in(flats.back(), begin, end));
    }
    EXPECT_TRUE(at::cat(flats).equal(state_)) << ranks;
  }
}

TEST_F(PartTest, LoadsFourRanksAsWholeTensors) {
  save_four_ranks();
  EXPECT_THAT(optimizer().names(), ElementsAre("exp_avg.bias", "exp_avg.weight", "step"));
  const at::Tensor weight = at::zeros({kRows, kColumns}), bias = at::zeros({kBiases}), step = at::zeros({});
  restore(optimizer(), {{"exp_avg.weight", weight}, {"exp_avg.bias", bias}, {"step", step}});
  EXPECT_TRUE(at::cat({weight.view(-1), bias}).equal(state_));
  EXPECT_EQ(step.item<float>(), 5);
  EXPECT_TRUE(optimizer().tensor("exp_avg.weight").equal(weight));
  EXPECT_TRUE(optimizer().tensor("exp_avg.bias").equal(bias));
}

TEST_F(PartTest, FillsTensorsOfAnyStrides) {
  save_four_ranks();
  const at::Tensor columns = at::zeros({kColumns, kRows}).t();
  optimizer().read({{"exp_avg.weight", columns, {}}});
  EXPECT_TRUE(columns.equal(state_.slice(0, 0, kRows * kColumns).view({kRows, kColumns})));
}

// A channels-last filter, cut in memory order: read in that order, in row-major order, and whole.
TEST_F(PartTest, LoadsSlicesOfAnyOrderInAnyOther) {
  const at::Tensor filter = at::arange(6 * 4 * 3 * 5).to(at::kFloat).view({6, 4, 3, 5});
  const std::vector<int64_t> last{0, 2, 3, 1};
  const at::Tensor in_memory = filter.permute(last).reshape(-1);
  Snapshot snapshot{.step = 8, .state = "{}"};
  for (int64_t rank = 0; rank < 2; ++rank) {
    const int64_t begin = rank == 0 ? 0 : 100, end = rank == 0 ? 100 : filter.numel();
    snapshot.shards.push_back({.part = "optimizer",
                               .rank = rank,
                               .ranks = 2,
                               .tensors = {{"filter", in_memory.slice(0, begin, end)}},
                               .slices = {{"filter", {.shape = {6, 4, 3, 5}, .begin = begin, .order = last}}}});
  }
  CheckpointStore(folder_).save(snapshot);
  const Part part = optimizer();
  EXPECT_TRUE(part.tensor("filter").equal(filter));
  const at::Tensor whole = at::zeros({6, 4, 3, 5}), of_memory = at::zeros({50}), of_rows = at::zeros({50});
  part.read({{"filter", whole, {}},
             {"filter", of_memory, Slice{.shape = {6, 4, 3, 5}, .begin = 90, .order = last}},
             {"filter", of_rows, Slice{.shape = {6, 4, 3, 5}, .begin = 90}}});
  EXPECT_TRUE(whole.equal(filter));
  EXPECT_TRUE(of_memory.equal(in_memory.slice(0, 90, 140)));
  EXPECT_TRUE(of_rows.equal(filter.view(-1).slice(0, 90, 140)));
}

TEST_F(PartTest, RefusesAnOrderThatIsNone) {
  save_four_ranks();
  for (const nlohmann::json& order : {nlohmann::json{0, 0}, nlohmann::json{1}, nlohmann::json{0, 2}}) {
    edit_manifest([&](nlohmann::json& manifest) {
      manifest["files"][file_name("optimizer", 0, 4)]["slices"]["exp_avg.weight"]["order"] = order;
    });
    EXPECT_THAT(rejection(), HasSubstr("an order that is not one of the tensor's dimensions"));
  }
}

TEST_F(PartTest, DetectsDamageInTheFileItReads) {
  save_four_ranks();
  const Part part = optimizer();  // the file is still valid
  std::fstream file(file_of(2), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end).put('\x7f');
  file.close();
  const at::Tensor bias = at::zeros({kBiases});
  EXPECT_NO_THROW(part.read({{"exp_avg.bias", bias, {}}}));  // only rank 3's file has it
  const at::Tensor weight = at::zeros({kRows, kColumns});
  EXPECT_THROW(part.read({{"exp_avg.weight", weight, {}}}), Damage);
  EXPECT_THAT(rejection(), HasSubstr("optimizer-00003-of-00004.safetensors: damaged"));
}

TEST_F(PartTest, TellsDamagedNameFromOtherJob) {
  CheckpointStore store(folder_);
  for (const int64_t step : {1, 2}) {
    store.save({.step = step, .files = {{"model", {{"weight", at::full({4}, double(step))}}}}, .state = "{}"});
  }
  const at::Tensor live = at::zeros({4});
  EXPECT_THROW(store.find_newest([&](const Checkpoint& from) { restore(from.part("model"), {{"other", live}}); }),
               Error);
  std::fstream file(folder_ / "step-00000002" / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  std::string start(64, '\0');
  file.read(start.data(), 64);
  ASSERT_NE(start.find("weight"), std::string::npos);
  file.seekp(static_cast<std::streamoff>(start.find("weight"))).put('W');
  file.close();
  const auto search =
      store.find_newest([&](const Checkpoint& from) { restore(from.part("model"), {{"weight", live}}); });
  ASSERT_TRUE(search.newest);
  EXPECT_EQ(search.newest->step(), 1);
  EXPECT_TRUE(live.equal(at::ones({4})));
  ASSERT_EQ(search.rejected.size(), 1U);
  EXPECT_THAT(search.rejected[0].reason, HasSubstr("model.safetensors: damaged: its hash differs"));
  EXPECT_TRUE(search.rejected[0].is_damaged);
}

TEST_F(PartTest, RefusesMissingFileOfARank) {
  save_four_ranks();
  fs::remove(file_of(1));
  EXPECT_THAT(rejection(), HasSubstr("optimizer-00002-of-00004.safetensors: missing"));
}

TEST_F(PartTest, RefusesSlicesThatDoNotCoverATensorOnce) {
  const auto weight_of = [](nlohmann::json& manifest, int rank) -> nlohmann::json& {
    return manifest["files"][file_name("optimizer", rank, 4)]["slices"]["exp_avg.weight"];
  };
  const std::vector<std::pair<std::string, std::function<void(nlohmann::json&)>>> edits{
      {"no file has element 55 of 'exp_avg.weight'", [&](auto& m) { weight_of(m, 1)["begin"] = 56; }},
      {"two files have element 54 of 'exp_avg.weight'", [&](auto& m) { weight_of(m, 1)["begin"] = 54; }},
      {"no file has element 55 of", [](auto& m) { m["files"].erase(file_name("optimizer", 1, 4)); }},
      {"has another dtype or shape in another file", [&](auto& m) { weight_of(m, 1)["shape"] = {7, 30}; }},
      {"a slice outside its tensor", [&](auto& m) { weight_of(m, 1)["begin"] = 211; }},
      {"does not match its slice in the manifest", [&](auto& m) { weight_of(m, 1)["begin"] = 200; }},
      {"not a count", [&](auto& m) { weight_of(m, 1)["begin"] = -1; }},
      {"too large for memory", [&](auto& m) { weight_of(m, 1)["shape"] = {INT64_MAX, 3}; }},
      {"lacks a slice",
       [](auto& m) { m["files"][file_name("optimizer", 1, 4)]["slices"]["v"] = {{"shape", {1}}, {"begin", 0}}; }},
      {"another dtype or shape", [](auto& m) { m["files"][file_name("optimizer", 1, 4)].erase("slices"); }}};
  for (const auto& [reason, edit] : edits) {
    fs::remove_all(folder_);
    save_four_ranks();
    edit_manifest(edit);
    EXPECT_THAT(rejection(), HasSubstr(reason));
  }
}

TEST_F(PartTest, RefusesSliceOfOtherShapeUnchanged) {
  save_four_ranks();
  const at::Tensor some = at::zeros({10});
  EXPECT_THROW(optimizer().read({{"exp_avg.bias", some, Slice{{kBiases + 1}, 0}}}), Error);
  EXPECT_EQ(some.sum().item<float>(), 0);
}

TEST_F(PartTest, RestoresEveryByteOverManyBlocks) {
  const at::Tensor large = at::arange(5'000'003, at::kInt), small = at::arange(3, at::kByte);
  CheckpointStore(folder_).save({.step = 1, .files = {{"model", {{"large", large}, {"small", small}}}}, .state = "{}"});
  const at::Tensor live = at::zeros_like(large), bytes = at::zeros_like(small);
  const Checkpoint saved = *CheckpointStore(folder_).find_newest().newest;
  restore(saved.part("model"), {{"large", live}, {"small", bytes}});
  EXPECT_TRUE(live.equal(large));
  EXPECT_TRUE(bytes.equal(small));
  EXPECT_TRUE(saved.part("model").tensor("large").equal(large));
}

}  // namespace
}  // namespace gputrain::checkpoint
