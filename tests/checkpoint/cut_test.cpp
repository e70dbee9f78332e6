// Slices of tensors that are cut along one dimension, as by tensor parallelism, alone and together with other slices.
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "gputrain/checkpoint/store.hpp"
#include "gputrain/checkpoint/weight_files.hpp"
#include "store_fixture.hpp"

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// A slice and how many elements it has; no slice: the whole tensor.
struct Held {
  std::optional<Slice> slice;
  int64_t count = 0;
};
using Layout = std::vector<Held>;  // by rank

const std::vector<int64_t> kCutShape{6, 10, 4};

Held held(std::optional<Cut> cut, int64_t begin, int64_t count) {
  return {.slice = Slice{.shape = kCutShape, .begin = begin, .cut = std::move(cut)}, .count = count};
}

/// What a rank holds, flat, by the indices that are left.
at::Tensor values_of(const at::Tensor& whole, const Held& what) {
  if (!what.slice) return whole;
  at::Tensor left = whole;
  if (what.slice->cut) {
    std::vector<int64_t> indices;
    for (const auto& [begin, end] : what.slice->cut->ranges) {
      for (int64_t i = begin; i < end; ++i) indices.push_back(i);
    }
    left = at::index_select(whole, what.slice->cut->dim, at::tensor(indices));
  }
  return left.reshape(-1).slice(0, what.slice->begin, what.slice->begin + what.count);
}

const Cut kEven{.dim = 1, .ranges = {{0, 2}, {4, 5}, {7, 8}}};  // three ranges, as of fused query, key and value
const Cut kOdd{.dim = 1, .ranges = {{2, 4}, {5, 7}, {8, 10}}};

const Cut kAbove{.dim = 0, .ranges = {{0, 2}}}, kBelow{.dim = 0, .ranges = {{2, 6}}};
const Cut kRim{.dim = 0, .ranges = {{0, 1}, {5, 6}}}, kMiddle{.dim = 0, .ranges = {{1, 3}, {3, 5}}};
const Cut kLeft{.dim = 1, .ranges = {{0, 5}}}, kRight{.dim = 1, .ranges = {{5, 10}}};
const Cut kSides{.dim = 2, .ranges = {{0, 1}, {3, 4}}}, kInside{.dim = 2, .ranges = {{1, 3}}};

/// Ways to share out a tensor of [6, 10, 4].
const std::vector<Layout> kLayouts{
    {{}},
    {held({}, 0, 7), held({}, 7, 100), held({}, 107, 133)},
    {held(kBelow, 0, 160), held(kAbove, 0, 80)},
    {held(kRim, 0, 80), held(kMiddle, 0, 160)},
    {held(kEven, 0, 96), held(kOdd, 0, 144)},
    {held(kEven, 0, 15), held(kEven, 15, 50), held(kEven, 65, 31), held(kOdd, 0, 143), held(kOdd, 143, 1)},
    {held(kSides, 0, 120), held(kInside, 0, 61), held(kInside, 61, 59)},
    {held(kAbove, 0, 80), held({}, 80, 160)},
    {held({}, 0, 120), held(kLeft, 60, 60), held(kRight, 60, 60)}};

class CutTest : public ::testing::Test {
 protected:
  void SetUp() override { fs::remove_all(folder_); }
  void TearDown() override { fs::remove_all(folder_); }

  void save(const at::Tensor& whole, const Layout& layout) {
    Snapshot snapshot{.step = 8, .state = "{}"};
    for (const Held& what : layout) {
      Shard shard{.part = "model", .rank = std::ssize(snapshot.shards), .ranks = std::ssize(layout)};
      shard.tensors.emplace_back("w", values_of(whole, what));
      if (what.slice) shard.slices["w"] = *what.slice;
      snapshot.shards.push_back(std::move(shard));
    }
    CheckpointStore(folder_).save(snapshot);
  }
  Part part() const { return CheckpointStore(folder_).find_newest().newest->part("model"); }
  std::string rejection() const {
    const auto search = CheckpointStore(folder_).find_newest();
    return search.rejected.empty() ? "accepted" : search.rejected[0].reason;
  }
  nlohmann::json manifest() const { return nlohmann::json::parse(std::ifstream(step_ / kManifestName)); }

  const fs::path folder_ = fs::temp_directory_path() / ("gputrain_cut_" + std::to_string(::getpid()));
  const fs::path step_ = folder_ / "step-00000008";
  const at::Tensor whole_ = at::arange(240).view(kCutShape);
};

TEST_F(CutTest, IsReadFromAnyLayoutIntoAnyOther) {
  for (const auto type : {at::kLong, at::kBFloat16}) {
    const at::Tensor whole = whole_.to(type);  // every value is exact in 16 bits
    for (size_t saved = 0; saved < kLayouts.size(); ++saved) {
      fs::remove_all(folder_);
      save(whole, kLayouts[saved]);
      const Part from = part();
      EXPECT_TRUE(from.tensor("w").equal(whole)) << saved;
      for (size_t wanted = 0; wanted < kLayouts.size(); ++wanted) {
        std::vector<Part::Target> targets;
        for (const Held& what : kLayouts[wanted])
          targets.push_back({"w", at::zeros_like(values_of(whole, what)), what.slice});
        from.read(targets);
        for (size_t rank = 0; rank < targets.size(); ++rank) {
          EXPECT_TRUE(targets[rank].tensor.equal(values_of(whole, kLayouts[wanted][rank])))
              << type << ", saved " << saved << ", wanted " << wanted << ", rank " << rank;
        }
      }
    }
  }
}

TEST_F(CutTest, HoldsColumnsOfAMatrix) {
  const at::Tensor matrix = at::arange(12).view({3, 4});  // [[0, 1, 2, 3], [4, ...
  save(matrix, {{}});
  const at::Tensor columns = at::zeros({3, 2}, at::kLong);
  part().read({{"w", columns, Slice{.shape = {3, 4}, .cut = Cut{.dim = 1, .ranges = {{0, 1}, {3, 4}}}}}});
  EXPECT_TRUE(columns.equal(at::tensor(std::vector<int64_t>{0, 3, 4, 7, 8, 11}).view({3, 2})));
}

TEST_F(CutTest, FillsATensorOfAnyStrides) {
  save(whole_, kLayouts[5]);
  const at::Tensor transposed = at::zeros({4, 4, 6}, at::kLong).transpose(0, 2);
  part().read({{"w", transposed, held(kEven, 0, 96).slice}});
  EXPECT_TRUE(transposed.reshape(-1).equal(values_of(whole_, held(kEven, 0, 96))));
}

TEST_F(CutTest, IsReadFromChannelsLastAndInto) {
  const Slice channels_last{.shape = kCutShape, .order = {0, 2, 1}};
  const at::Tensor in_memory = whole_.permute({0, 2, 1}).reshape(-1);
  CheckpointStore(folder_).save({.step = 8,
                                 .shards = {{.part = "model",
                                             .ranks = 2,
                                             .tensors = {{"w", in_memory.slice(0, 0, 99)}},
                                             .slices = {{"w", channels_last}}},
                                            {.part = "model",
                                             .rank = 1,
                                             .ranks = 2,
                                             .tensors = {{"w", in_memory.slice(0, 99)}},
                                             .slices = {{"w", {kCutShape, 99, channels_last.order}}}}},
                                 .state = "{}"});
  const Held some = held(kOdd, 30, 90);
  const at::Tensor cut = at::zeros({90}, at::kLong), back = at::zeros({240}, at::kLong);
  part().read({{"w", cut, some.slice}});
  EXPECT_TRUE(cut.equal(values_of(whole_, some)));
  fs::remove_all(folder_);
  save(whole_, kLayouts[4]);
  part().read({{"w", back, channels_last}});
  EXPECT_TRUE(back.equal(in_memory));
}

// Runs begin and end anywhere in the blocks of a file, and two targets want the same elements.
TEST_F(CutTest, IsReadTwiceOverManyBlocks) {
  const at::Tensor large = at::arange(1501 * 1001, at::kInt).view({1501, 1001});
  const auto piece = [](Cut cut, int64_t begin, int64_t count) {
    return Held{.slice = Slice{.shape = {1501, 1001}, .begin = begin, .cut = std::move(cut)}, .count = count};
  };
  const Cut wide{.dim = 1, .ranges = {{0, 900}, {950, 1001}}}, narrow{.dim = 1, .ranges = {{900, 950}}};
  save(large, {piece(wide, 0, 1'400'000), piece(wide, 1'400'000, 27'451), piece(narrow, 0, 75'050)});
  const Held most = piece({.dim = 1, .ranges = {{1, 940}}}, 3, 1'400'000);
  const at::Tensor all = at::zeros_like(large), cut = at::zeros({most.count}, at::kInt);
  const Part from = part();
  from.read({{"w", all, {}}, {"w", cut, most.slice}});
  EXPECT_TRUE(all.equal(large));
  EXPECT_TRUE(cut.equal(values_of(large, most)));
  EXPECT_TRUE(from.tensor("w").equal(large));
}

TEST_F(CutTest, IsReadAsWeights) {
  save(whole_, kLayouts[5]);
  const WeightFiles weights(step_);
  EXPECT_THAT(weights.names(), ElementsAre("w"));
  EXPECT_TRUE(weights.tensor("w").equal(whole_));
}

TEST_F(CutTest, HasTheElementsThatReadFindsInTheWholeTensor) {
  for (const Layout& layout : kLayouts) {
    for (const Held& what : layout) {
      if (!what.slice) continue;
      EXPECT_TRUE(elements_of(whole_, *what.slice, what.count).equal(values_of(whole_, what)));
    }
  }
}

TEST_F(CutTest, IsNotReadFromDamagedFiles) {
  save(whole_, kLayouts[4]);
  const Part from = part();
  std::fstream file(step_ / file_name("model", 1, 2), std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(-1, std::ios::end).put('\x7f');
  file.close();
  const at::Tensor sound = at::zeros({96}, at::kLong), all = at::zeros(kCutShape, at::kLong);
  EXPECT_NO_THROW(from.read({{"w", sound, held(kEven, 0, 96).slice}}));
  EXPECT_THROW(from.read({{"w", all, {}}}), Damage);
}

TEST_F(CutTest, IsMissedByElement) {
  Layout layout = kLayouts[5];
  layout.erase(layout.begin() + 1);  // from element 15 of the cut: element 3 of index 7, in the first row
  save(whole_, layout);
  EXPECT_THAT(rejection(), HasSubstr("no file has element 31 of 'w'"));
  layout = kLayouts[5];
  layout.pop_back();
  fs::remove_all(folder_);
  save(whole_, layout);
  EXPECT_THAT(rejection(), HasSubstr("no file has element 239 of 'w'"));
}

TEST_F(CutTest, IsRefusedWhereFilesDoNotFit) {
  const std::vector<std::pair<std::string, std::function<void(nlohmann::json&)>>> edits{
      {"two files have element 4 of 'w'", [](auto& slice) { slice["cut"]["ranges"][0] = {1, 3}; }},
      {"no file has element 8 of 'w'", [](auto& slice) { slice["cut"]["ranges"][0] = {3, 5}; }},
      {"does not match its slice in the manifest", [](auto& slice) { slice["cut"]["ranges"][0] = {3, 4}; }},
      {"does not match its slice in the manifest", [](auto& slice) { slice["begin"] = 1; }},
      {"two files have element 0 of 'w'", [](auto& slice) { slice.erase("cut"); }},
      {"another dtype or shape", [](auto& slice) { slice["shape"] = {6, 10, 5}; }},
  };
  for (const auto& [reason, edit] : edits) {
    fs::remove_all(folder_);
    save(whole_, kLayouts[4]);
    nlohmann::json changed = manifest();
    edit(changed["files"][file_name("model", 1, 2)]["slices"]["w"]);
    write_sealed_manifest(step_ / kManifestName, changed);
    EXPECT_THAT(rejection(), HasSubstr(reason));
  }
}

TEST_F(CutTest, ThatIsImpossibleIsRefused) {
  const auto refusal = [](const nlohmann::json& cut, int64_t begin = 0, const nlohmann::json& more = {}) {
    nlohmann::json slice{{"shape", {6, 10, 4}}, {"begin", begin}, {"cut", cut}};
    slice.update(more.is_null() ? nlohmann::json::object() : more);
    const nlohmann::json file{
        {"bytes", 1}, {"xxh3_128", "ab"}, {"part", "model"}, {"rank", 0}, {"slices", {{"w", slice}}}};
    try {
      parse_file(file.dump(), "f");
      return std::string("accepted");
    } catch (const Damage& damage) {
      return std::string(damage.what());
    }
  };
  const auto cut = [](const nlohmann::json& dim, const std::string& ranges) {
    return nlohmann::json{{"dim", dim}, {"ranges", nlohmann::json::parse(ranges)}};
  };
  EXPECT_EQ(refusal(cut(1, "[[0, 2], [4, 10]]"), 192), "accepted");
  EXPECT_THAT(refusal(cut(1, "[[0, 2], [4, 10]]"), 193), HasSubstr("a slice outside its tensor"));
  EXPECT_THAT(refusal(cut(3, "[[0, 1]]")), HasSubstr("a dimension that is not there"));
  EXPECT_THAT(refusal(cut(INT64_MAX, "[[0, 1]]")), HasSubstr("a dimension that is not there"));
  EXPECT_THAT(refusal(cut(0, "[[0, 1]]"), 0, {{"shape", nlohmann::json::array()}}),
              HasSubstr("a dimension that is not there"));
  EXPECT_THAT(refusal(cut(-1, "[[0, 1]]")), HasSubstr("not a count"));
  EXPECT_THAT(refusal(cut(1, "[]")), HasSubstr("a cut that leaves nothing"));
  for (const char* ranges : {"[[2, 2]]", "[[5, 4]]", "[[0, 2], [1, 3]]", "[[4, 6], [0, 2]]"})
    EXPECT_THAT(refusal(cut(1, ranges)), HasSubstr("empty, overlap or do not ascend")) << ranges;
  for (const char* ranges : {"[[8, 11]]", "[[10, 11]]", "[[0, 9223372036854775807]]"})
    EXPECT_THAT(refusal(cut(1, ranges)), HasSubstr("a cut outside its tensor")) << ranges;
  for (const char* ranges : {"[[0, 9223372036854775808]]", "[[-1, 2]]", "[[0, 1.5]]"})
    EXPECT_THAT(refusal(cut(1, ranges)), HasSubstr("not a count")) << ranges;
  for (const char* ranges : {"[[0]]", "[[0, 1, 2]]", "[0, 1]", "{}", "7"})
    EXPECT_THAT(refusal(cut(1, ranges)), HasSubstr("not ranges of a cut")) << ranges;
  for (const nlohmann::json& value : {nlohmann::json(7), nlohmann::json::object(), nlohmann::json(nullptr)})
    EXPECT_THAT(refusal(value), HasSubstr("not the JSON that was written"));
  EXPECT_THAT(refusal(cut(1, "[[0, 1]]"), 0, {{"order", {0, 2, 1}}}), HasSubstr("not row-major"));
  EXPECT_THAT(refusal(cut(1, "[[0, 1]]"), 0, {{"shape", {INT64_MAX, 10, 4}}}), HasSubstr("too large for memory"));
  EXPECT_THAT(refusal(cut(1, "[[0, 1]]"), 1, {{"shape", {0, 10, INT64_MAX}}}), HasSubstr("outside its tensor"));
}

TEST_F(CutTest, IsWrittenInAFormatVersionOfItsOwn) {
  const auto version_with = [](const Slice& slice) {
    Manifest manifest;
    manifest.files[kStateName];
    manifest.files["model.safetensors"] = {.seal = {}, .part = "model", .slices = {{"w", slice}}};
    manifest.files["other.safetensors"] = {.seal = {}, .part = "other", .slices = {{"w", {.shape = {1}}}}};
    const std::string text = to_json(manifest);
    EXPECT_EQ(parse_manifest(text, "f").files.at("model.safetensors").slices.at("w"), slice);
    return nlohmann::json::parse(text)["version"].get<int>();
  };
  EXPECT_EQ(version_with({.shape = kCutShape, .begin = 3}), 3);
  EXPECT_EQ(version_with({.shape = kCutShape, .order = {0, 2, 1}}), 4);
  EXPECT_EQ(version_with({.shape = kCutShape, .begin = 3, .cut = kOdd}), 5);
}

TEST_F(CutTest, ThatIsImpossibleIsNeitherWrittenNorWanted) {
  const Slice ordered{.shape = kCutShape, .order = {0, 2, 1}, .cut = kEven};
  const Manifest::File file{.seal = {}, .part = "model", .slices = {{"w", ordered}}};
  EXPECT_THROW(to_json(file), std::logic_error);
  save(whole_, kLayouts[4]);
  const at::Tensor some = at::zeros({96}, at::kLong), more = at::zeros({97}, at::kLong);
  EXPECT_THROW(part().read({{"w", some, ordered}}), std::logic_error);
  EXPECT_THROW(part().read({{"w", more, held(kEven, 0, 97).slice}}), std::logic_error);
}

}  // namespace
}  // namespace gputrain::checkpoint
