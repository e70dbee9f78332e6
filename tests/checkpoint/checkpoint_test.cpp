#include "gputrain/checkpoint/store.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

static bool exchanges_fail = false;

/// In front of the C library's.
extern "C" __attribute__((visibility("default"))) int renameat2(int from_folder, const char* from, int to_folder,
                                                                const char* to, unsigned int flags) noexcept {
  if (!exchanges_fail) return static_cast<int>(::syscall(SYS_renameat2, from_folder, from, to_folder, to, flags));
  errno = EINVAL;
  return -1;
}

namespace gputrain::checkpoint {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

float weight_of(const Checkpoint& checkpoint) { return checkpoint.part("model").tensor("w").min().item<float>(); }

class CheckpointTest : public ::testing::Test {
 protected:
  void TearDown() override { fs::remove_all(folder_); }

  /// A checkpoint whose content tells its step.
  static void save(CheckpointStore& store, int64_t step) {
    const NamedTensors model{{"w", at::full({3}, static_cast<float>(step))}, {"b", at::arange(4)}};
    store.save({.step = step,
                .files = {{"model", model}, {"rng", {{"cpu", at::arange(8, at::kByte)}}}},
                .state = nlohmann::json{{"loader_step", step}}.dump()});
  }
  static void save_scored(CheckpointStore& store, int64_t step, double loss) {
    store.save({.step = step, .state = "{}", .score = Score{"val/loss", loss}});
  }

  std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (entry.is_directory() && !entry.is_symlink()) names.push_back(entry.path().filename());
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  static std::string content_of(const fs::path& path) {
    std::ostringstream text;
    text << std::ifstream(path, std::ios::binary).rdbuf();
    return text.str();
  }
  static void overwrite(const fs::path& path, const std::string& content) {
    std::ofstream(path, std::ios::binary | std::ios::trunc) << content;
  }

  const fs::path folder_ = fs::temp_directory_path() / ("gputrain_checkpoint_" + std::to_string(::getpid()));
};

TEST_F(CheckpointTest, FindsNothingWhereNothingWasSaved) {
  const CheckpointStore::Search search = CheckpointStore(folder_).find_newest();
  EXPECT_FALSE(search.newest);
  EXPECT_TRUE(search.rejected.empty());
}

TEST_F(CheckpointTest, GivesBackTensorsAndStateOfTheNewestStep) {
  CheckpointStore store(folder_);
  save(store, 100);
  save(store, 20);  // a smaller number saved later is still the older step
  const CheckpointStore::Search search = store.find_newest();
  ASSERT_TRUE(search.newest);
  EXPECT_EQ(search.newest->step(), 100);
  EXPECT_EQ(search.newest->folder(), folder_ / "step-00000100");
  EXPECT_EQ(search.newest->state(), (nlohmann::json{{"loader_step", 100}}));
  EXPECT_EQ(weight_of(*search.newest), 100);
  EXPECT_EQ(search.newest->part("rng").tensor("cpu").numel(), 8);
  EXPECT_THROW(search.newest->part("optimizer"), Error);
}

TEST_F(CheckpointTest, KeepsTheLastFewAndNothingElse) {
  CheckpointStore store(folder_, {.keep_last = 2});
  for (const int64_t step : {1, 2, 3, 4}) save(store, step);
  EXPECT_THAT(names(), ElementsAre("step-00000003", "step-00000004"));
}

TEST_F(CheckpointTest, DoesNotCountADamagedCheckpointAmongThoseItKeeps) {
  CheckpointStore store(folder_, {.keep_last = 2});
  save(store, 1);
  save(store, 2);
  fs::remove(folder_ / "step-00000002" / "model.safetensors");
  save(store, 3);
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002", "step-00000003"));
  save(store, 4);
  EXPECT_THAT(names(), ElementsAre("step-00000003", "step-00000004"));
}

TEST_F(CheckpointTest, KeepsTheBestAndTheMultiplesBesideTheLast) {
  CheckpointStore store(folder_, {.keep_last = 1, .keep_best = 2, .keep_every = 4});
  const std::map<int64_t, double> losses{{1, 0.5}, {2, 0.1}, {3, 0.9}, {4, 0.8}, {5, 0.3}, {6, 0.7}, {7, 0.6}};
  for (const auto& [step, loss] : losses) save_scored(store, step, loss);
  EXPECT_THAT(names(), ElementsAre("step-00000002", "step-00000004", "step-00000005", "step-00000007"));
  EXPECT_EQ(fs::read_symlink(folder_ / "best"), "step-00000002");
  EXPECT_EQ(fs::read_symlink(folder_ / "latest"), "step-00000007");
}

TEST_F(CheckpointTest, KnowsThatAccuraciesGrowAndThatScoresOfAnotherMetricDoNotCompare) {
  CheckpointStore store(folder_, {.keep_last = 1, .keep_best = 1, .smaller_is_better = false});
  store.save({.step = 1, .state = "{}", .score = Score{"val/loss", 1000}});
  for (const auto& [step, accuracy] : std::map<int64_t, double>{{2, 70}, {3, 90}, {4, 80}}) {
    store.save({.step = step, .state = "{}", .score = Score{"val/top1", accuracy}});
  }
  save(store, 5);  // without a score
  EXPECT_THAT(names(), ElementsAre("step-00000003", "step-00000005"));
}

TEST_F(CheckpointTest, ListsEveryCheckpointWithWhatIsWrongWithIt) {
  CheckpointStore store(folder_, {.keep_last = 3});
  save(store, 1);
  save_scored(store, 2, 0.25);
  fs::resize_file(folder_ / "step-00000001/model.safetensors", 10);
  fs::copy(folder_ / "step-00000002", folder_ / "step-00000003");
  const auto listed = store.list();
  ASSERT_EQ(listed.size(), 3U);
  EXPECT_THAT(listed[0].problem, HasSubstr("its manifest is that of step 2"));
  EXPECT_EQ(listed[1].step, 2);
  EXPECT_EQ(listed[1].problem, "");
  EXPECT_EQ(listed[1].score->value, 0.25);
  EXPECT_THAT(listed[2].problem, HasSubstr("has 10 bytes instead of"));
}

TEST_F(CheckpointTest, TellsWhatPruningWouldRemoveBeforeItDoes) {
  CheckpointStore all(folder_, {.keep_last = 9});
  for (const int64_t step : {1, 2, 3}) save(all, step);
  const CheckpointStore store(folder_, {.keep_last = 1});
  EXPECT_THAT(store.prune(store.find_newest(), /*only_tell=*/true),
              ElementsAre(folder_ / "step-00000002", folder_ / "step-00000001"));
  EXPECT_EQ(names().size(), 3U);
  store.prune(store.find_newest());
  EXPECT_THAT(names(), ElementsAre("step-00000003"));
}

TEST_F(CheckpointTest, PointsAtTheBestOfThoseThatPruningLeft) {
  CheckpointStore all(folder_, {.keep_last = 9});
  for (const auto& [step, loss] : std::map<int64_t, double>{{1, 0.1}, {2, 0.5}, {3, 0.4}}) save_scored(all, step, loss);
  EXPECT_EQ(fs::read_symlink(folder_ / "best"), "step-00000001");
  const CheckpointStore store(folder_, {.keep_last = 1});
  store.prune(store.find_newest());
  EXPECT_EQ(fs::read_symlink(folder_ / "best"), "step-00000003");
}

TEST_F(CheckpointTest, SetsAsideUnderANameThatIsNeverReadOrTakenTwice) {
  CheckpointStore store(folder_);
  for (int i = 0; i < 2; ++i) {
    save(store, 1);
    store.set_aside(folder_ / "step-00000001", "bad");
  }
  EXPECT_THAT(names(), ElementsAre("step-00000001.bad", "step-00000001.bad-2"));
  const CheckpointStore::Search search = store.find_newest();
  EXPECT_FALSE(search.newest);
  EXPECT_TRUE(search.rejected.empty());
}

TEST_F(CheckpointTest, LooksForRoomBeforeTheFirstByte) {
  CheckpointStore store(folder_);
  save(store, 1);
  const at::Tensor petabytes = at::zeros({1}).expand({int64_t{1} << 50});
  try {
    store.save({.step = 2, .files = {{"model", {{"w", petabytes}}}}, .state = "{}"});
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no room"));
  }
  EXPECT_THAT(names(), ElementsAre("step-00000001"));
}

TEST_F(CheckpointTest, RemovesNoOldOneForANewOneThatReadsBackDamaged) {
  CheckpointStore store(folder_, {.keep_last = 1});
  save(store, 1);
  store.write({.step = 2, .files = {{"model", {{"w", at::ones({3})}}}}, .state = "{}"});
  const fs::path model = folder_ / "step-00000002" / "model.safetensors";
  std::string content = content_of(model);
  content.back() ^= 1;
  overwrite(model, content);
  EXPECT_THROW(store.confirm(2), Damage);
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002"));
}

TEST_F(CheckpointTest, LeavesNewerStepsOfAnAbandonedBranchAlone) {
  CheckpointStore store(folder_, {.keep_last = 1});
  save(store, 5);
  save(store, 3);
  EXPECT_THAT(names(), ElementsAre("step-00000003", "step-00000005"));
}

TEST_F(CheckpointTest, ReplacesACheckpointOfTheSameStep) {
  CheckpointStore store(folder_);
  save(store, 7);
  overwrite(folder_ / "step-00000007" / "model.safetensors", "damaged");
  save(store, 7);
  EXPECT_EQ(weight_of(*store.find_newest().newest), 7);
  EXPECT_THAT(names(), ElementsAre("step-00000007"));
}

TEST_F(CheckpointTest, IgnoresAndRemovesWhatAKilledProcessLeftHalfWritten) {
  CheckpointStore store(folder_);
  save(store, 1);
  fs::copy(folder_ / "step-00000001", folder_ / "step-00000002.partial");
  EXPECT_EQ(store.find_newest().newest->step(), 1);
  save(store, 2);
  EXPECT_EQ(store.find_newest().newest->step(), 2);
  EXPECT_THAT(names(), ElementsAre("step-00000001", "step-00000002"));
}

// As NFS does. What is in the way of the new one is moved aside, not removed first.
TEST_F(CheckpointTest, ReplacesACheckpointWhereTheFileSystemExchangesNoNames) {
  exchanges_fail = true;
  CheckpointStore store(folder_);
  for (const int64_t step : {6, 7}) save(store, step);
  overwrite(folder_ / "step-00000007" / "model.safetensors", "damaged");
  save(store, 7);
  exchanges_fail = false;
  EXPECT_EQ(weight_of(*store.find_newest().newest), 7);
  EXPECT_THAT(names(), ElementsAre("step-00000006", "step-00000007"));
}

struct Injury {
  std::string reason;
  void (*apply)(const fs::path& folder);
};

TEST_F(CheckpointTest, FallsBackToTheNewestGoodOneAndSaysWhatIsWrongWithTheOther) {
  const std::vector<Injury> injuries{
      {"has no manifest", [](const fs::path& f) { fs::remove(f / "manifest.json"); }},
      {"manifest.json: damaged", [](const fs::path& f) { overwrite(f / "manifest.json", ""); }},
      {"manifest.json: damaged", [](const fs::path& f) { overwrite(f / "manifest.json", "[1]"); }},
      {"manifest.json: not a manifest", [](const fs::path& f) { overwrite(f / "manifest.json", R"({"format":"x"})"); }},
      {"format version 1 is unknown",
       [](const fs::path& f) { overwrite(f / "manifest.json", R"({"format":"gputrain checkpoint","version":1})"); }},
      {"leads out of the folder",
       [](const fs::path& f) {
         overwrite(
             f / "manifest.json",
             R"({"format":"gputrain checkpoint","version":2,"step":2,"origin":{"spec_hash":"","world_size":1,"versions":{}},
                                          "files":{"../step-00000001/state.json":{"bytes":1,"xxh3_128":""}}})");
       }},
      {"names no state.json",
       [](const fs::path& f) {
         overwrite(f / "manifest.json", R"({"format":"gputrain checkpoint","version":2,"step":2,"files":{},
                                                 "origin":{"spec_hash":"","world_size":1,"versions":{}}})");
       }},
      {"model.safetensors: missing", [](const fs::path& f) { fs::remove(f / "model.safetensors"); }},
      {"model.safetensors: has 10 bytes instead of",
       [](const fs::path& f) { fs::resize_file(f / "model.safetensors", 10); }},
      {"state.json: damaged: its hash differs",
       [](const fs::path& f) {
         std::string text = content_of(f / "state.json");
         std::replace(text.begin(), text.end(), '2', '3');
         overwrite(f / "state.json", text);
       }},
      {"manifest is that of step 1", [](const fs::path& f) {
         fs::remove_all(f);
         fs::copy(f.parent_path() / "step-00000001", f);
       }}};
  for (const Injury& injury : injuries) {
    fs::remove_all(folder_);
    CheckpointStore store(folder_);
    save(store, 1);
    save(store, 2);
    injury.apply(folder_ / "step-00000002");
    const CheckpointStore::Search search = store.find_newest();
    ASSERT_TRUE(search.newest) << injury.reason;
    EXPECT_EQ(search.newest->step(), 1) << injury.reason;
    ASSERT_EQ(search.rejected.size(), 1u) << injury.reason;
    EXPECT_EQ(search.rejected[0].folder, folder_ / "step-00000002");
    EXPECT_THAT(search.rejected[0].reason, HasSubstr(injury.reason));
  }
}

/// Whether a damaged checkpoint is refused, or else gives exactly what was saved (a flip in white space).
bool is_refused_or_equal(const fs::path& folder, const Checkpoint& original) {
  try {
    const Checkpoint read = Checkpoint::open(folder);
    return read.step() == original.step() && read.state() == original.state() && weight_of(read) == weight_of(original);
  } catch (const Error& error) {
    return error.code() == ExitCode::checkpoint;
  }
}

TEST_F(CheckpointTest, IsNeverFooledByAFlippedBitOrATruncation) {
  CheckpointStore store(folder_);
  save(store, 3);
  const Checkpoint original = *store.find_newest().newest;
  for (const auto& entry : fs::directory_iterator(original.folder())) {
    const std::string good = content_of(entry.path());
    const fs::path path = entry.path();
    for (size_t i = 0; i < good.size(); ++i) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      fs::remove(path);  // not in place: `original` maps the old file
      overwrite(path, bad);
      EXPECT_TRUE(is_refused_or_equal(original.folder(), original)) << path << " byte " << i;
      overwrite(path, good.substr(0, i));
      EXPECT_TRUE(is_refused_or_equal(original.folder(), original)) << path << " cut at " << i;
    }
    overwrite(path, good);
  }
  EXPECT_EQ(store.find_newest().newest->step(), 3);
}

// A file size limit makes the kernel refuse a write in the middle, as a full disk does.
TEST_F(CheckpointTest, KeepsTheOldCheckpointAndLeavesNothingWhenTheDiskRefuses) {
  CheckpointStore store(folder_);
  save(store, 1);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  auto* handler = std::signal(SIGXFSZ, SIG_IGN);
  // Within the only block; in the third, whole blocks having gone to the disk; in the rest after whole ones.
  for (const auto& [limit, items] :
       std::map<rlim_t, int64_t>{{20'000, 10'000}, {20'000'000, 10'000'000}, {39'999'000, 10'000'000}}) {
    const rlimit small{limit, before.rlim_max};
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
    EXPECT_THROW(store.save({.step = 2, .files = {{"model", {{"w", at::ones({items})}}}}, .state = "{}"}), Error)
        << limit;
    setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_THAT(names(), ElementsAre("step-00000001")) << limit;
    EXPECT_EQ(store.find_newest().newest->step(), 1) << limit;
  }
  std::signal(SIGXFSZ, handler);
}

TEST_F(CheckpointTest, TellsWhereItCannotWrite) {
  overwrite(folder_, "a file in the place of the folder");
  CheckpointStore store(folder_ / "ckpt");
  try {
    save(store, 1);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::checkpoint);
    EXPECT_EQ(error.parts().where, (folder_ / "ckpt").string());
  }
}

/// Two parameters in an arena, with a flat optimizer state and a step count.
struct Trained {
  explicit Trained(bool is_reordered) {
    const auto layout = is_reordered ? at::MemoryFormat::Contiguous : at::MemoryFormat::ChannelsLast;
    const at::Tensor conv = at::empty({4, 3, 2, 2}, at::TensorOptions().memory_format(layout)).requires_grad_(true);
    const at::Tensor bias = at::empty({40}).requires_grad_(true);
    std::vector<device::Resident> residents{{"conv", conv, 0, true}, {"bias", bias, 1, false}};
    if (is_reordered) residents = {{"bias", bias, 0, true}, {"conv", conv, 1, true}};
    arena = std::make_unique<device::Arena>(residents);
    state.flat = {{"exp_avg", arena->make_state()}};
    state.scalars = {{"step", at::zeros({})}};
  }

  /// The average that belongs to a parameter, by sizes and strides.
  at::Tensor average_of(const std::string& parameter) const {
    for (const device::Segment& segment : arena->segments()) {
      if (segment.name == parameter) return arena->view(state.flat[0].second, segment);
    }
    return {};
  }

  std::unique_ptr<device::Arena> arena;
  optim::Optimizer::State state;
};

NamedTensors tensors_of(const std::vector<Part::Target>& targets) {
  NamedTensors tensors;
  for (const Part::Target& target : targets) tensors.emplace_back(target.name, target.tensor);
  return tensors;
}

TEST_F(CheckpointTest, RestoresOptimizerStateIntoAnArenaOfAnotherOrderAndLayout) {
  const Trained before(false), after(true);
  before.state.flat[0].second.copy_(at::randn({before.arena->values().numel()}));
  before.state.scalars[0].second.fill_(41);
  CheckpointStore store(folder_);
  store.save(
      {.step = 1, .files = {{"optimizer", tensors_of(per_parameter(*before.arena, before.state))}}, .state = "{}"});
  store.find_newest().newest->part("optimizer").read(per_parameter(*after.arena, after.state), 3);
  EXPECT_EQ(after.state.scalars[0].second.item<float>(), 41);
  EXPECT_TRUE(after.average_of("conv").equal(before.average_of("conv")));
  EXPECT_TRUE(after.average_of("bias").equal(before.average_of("bias")));
}

TEST_F(CheckpointTest, RestoresIntoParametersThatRequireGradients) {
  CheckpointStore store(folder_);
  save(store, 5);
  const at::Tensor weight = at::zeros({3}).requires_grad_(true), bias = at::zeros({4}, at::kLong);
  restore(store.find_newest().newest->part("model"), {{"w", weight}, {"b", bias}});
  EXPECT_EQ(weight.detach().sum().item<float>(), 15);
  EXPECT_TRUE(weight.is_leaf());
}

TEST_F(CheckpointTest, RefusesOtherNamesShapesAndTypesBeforeTouchingAnything) {
  CheckpointStore store(folder_);
  save(store, 5);
  const Checkpoint checkpoint = *store.find_newest().newest;
  const at::Tensor w = at::zeros({3}), b = at::zeros({4}, at::kLong);
  const std::vector<std::pair<NamedTensors, std::string>> wrong{
      {{{"w", w}, {"b", at::zeros({5}, at::kLong)}}, "'b' is Long [4], but Long [5] in this job"},
      {{{"w", w}, {"b", at::zeros({4})}}, "'b' is Long [4], but Float [4] in this job"},
      {{{"w", w}, {"c", b}}, "no tensor 'c'"},
      {{{"w", w}}, "has 2 tensors, this job 1"}};
  for (const auto& [live, told] : wrong) {
    try {
      restore(checkpoint.part("model"), live);
      FAIL() << told;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::checkpoint);
      EXPECT_THAT(error.parts().what, HasSubstr(told));
    }
    EXPECT_EQ(w.sum().item<float>(), 0) << told;
  }
}

}  // namespace
}  // namespace gputrain::checkpoint
