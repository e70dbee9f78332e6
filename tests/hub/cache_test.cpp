#include "gputrain/hub/cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>

#include "../../src/hub/chosen_files.hpp"
#include "gputrain/core/error.hpp"

namespace gputrain::hub {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kCommit(40, 'a');

Lookup from(std::map<std::string, std::string> variables) {
  return [variables](const char* name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::string revision_of(const std::string& text) {
  const auto model = model_name(text);
  return model ? model->revision : "no name";
}

fs::path new_folder() {
  std::string pattern = (fs::temp_directory_path() / "gputrain_hub_XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("mkdtemp failed");
  return pattern;
}

/// A cache that HF_HUB_CACHE names, with org/model at main.
struct HubCache : ::testing::Test {
  HubCache() {
    ::setenv("HF_HUB_CACHE", folder.c_str(), 1);
    fs::create_directories(model / "refs");
    fs::create_directories(snapshot);
    std::ofstream(model / "refs/main") << kCommit << "\n";
  }
  ~HubCache() override {
    ::unsetenv("HF_HUB_CACHE");
    fs::remove_all(folder);
  }

  static std::string error_of(const std::string& name) {
    try {
      pretrained_path(name);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }

  const fs::path folder = new_folder(), model = folder / "models--org--model", snapshot = model / "snapshots" / kCommit;
};

TEST(ModelName, ReadsNamesAsTheHubWritesThem) {
  EXPECT_EQ(revision_of("Qwen/Qwen3-0.6B"), "main");
  EXPECT_EQ(revision_of("gpt2"), "main");
  EXPECT_EQ(revision_of("org/model@refs/pr/1"), "refs/pr/1");
  EXPECT_EQ(model_name("org/model@v1")->name, "org/model");
}

TEST(ModelName, TakesPathsForPaths) {
  for (const char* path : {"/abs/model", "./model", "../model", "a/b/c", "a/model.safetensors", "model.json", "a--b/c",
                           "org/", "/model", "", "a b/c", "org/model@", "org/model@../x", "org/model@/x", "org/.git"}) {
    EXPECT_FALSE(model_name(path)) << path;
  }
}

TEST(HubCacheFolder, FollowsFirstVariableThatIsSet) {
  std::map<std::string, std::string> set{{"HOME", "/home/me"}};
  EXPECT_EQ(cache_folder(from(set)), "/home/me/.cache/huggingface/hub");
  set["XDG_CACHE_HOME"] = "/caches";
  EXPECT_EQ(cache_folder(from(set)), "/caches/huggingface/hub");
  set["HF_HOME"] = "~/hf";
  EXPECT_EQ(cache_folder(from(set)), "/home/me/hf/hub");
  set["HUGGINGFACE_HUB_CACHE"] = "/old";
  EXPECT_EQ(cache_folder(from(set)), "/old");
  set["HF_HUB_CACHE"] = "";
  EXPECT_EQ(cache_folder(from(set)), "/old");
  set["HF_HUB_CACHE"] = "/new";
  EXPECT_EQ(cache_folder(from(set)), "/new");
}

TEST_F(HubCache, FindsSnapshotOfRevision) {
  EXPECT_EQ(pretrained_path("org/model"), snapshot);
  EXPECT_EQ(pretrained_path("org/model@" + kCommit), snapshot);
  EXPECT_EQ(pretrained_path_or_name("org/model"), snapshot);
  EXPECT_EQ(pretrained_path_or_name("org/other"), "org/other");
}

TEST_F(HubCache, LeavesPathsAsTheyAre) {
  EXPECT_EQ(pretrained_path(folder.string()), folder);
  EXPECT_EQ(pretrained_path("/no/where"), "/no/where");
  EXPECT_EQ(pretrained_path("tests"), "tests");  // there is such a folder here
}

TEST_F(HubCache, SaysWhatIsMissing) {
  EXPECT_THAT(error_of("org/other"), HasSubstr("models--org--other/refs/main\n  try: gputrain fetch org/other"));
  EXPECT_THAT(error_of("org/model@v2"), HasSubstr("models--org--model/refs/v2\n  try: gputrain fetch org/model@v2"));
  fs::remove_all(snapshot);
  EXPECT_THAT(error_of("org/model"), HasSubstr("there is no " + snapshot.string()));
}

TEST_F(HubCache, KnowsTheCommandThatFetchesWhatIsMissing) {
  EXPECT_EQ(fetch_command_for(snapshot), "gputrain fetch org/model");
  EXPECT_EQ(fetch_command_for(snapshot / "model.safetensors"), "gputrain fetch org/model");
  EXPECT_EQ(fetch_command_for(snapshot.string() + "/"), "gputrain fetch org/model");
  std::ofstream(model / "refs/main") << std::string(40, 'b');
  EXPECT_EQ(fetch_command_for(snapshot), "gputrain fetch org/model@" + kCommit);
  EXPECT_EQ(fetch_command_for("/data/models--gpt2/snapshots/" + kCommit),
            "HF_HUB_CACHE=/data gputrain fetch gpt2@" + kCommit);
  for (const fs::path& other : {folder, model, model / "snapshots", fs::path("/"), fs::path("models--a/snapshots/x")})
    EXPECT_EQ(fetch_command_for(other), "") << other;
}

TEST_F(HubCache, TrustsNoCommitThatIsNone) {
  std::ofstream(model / "refs/main") << "../../../etc";
  EXPECT_THAT(error_of("org/model"), HasSubstr("refs/main"));
}

TEST(ChosenFiles, TakesOneCopyOfTheWeights) {
  EXPECT_THAT(weight_files({"consolidated.safetensors", "model.safetensors", "onnx/model.safetensors"}, ""),
              ElementsAre("model.safetensors"));
  EXPECT_THAT(weight_files({"adapter_model.safetensors", "x.bin"}, ""), ElementsAre("adapter_model.safetensors"));
  EXPECT_THAT(weight_files({"pytorch_model.bin", "model.gguf"}, ""), IsEmpty());
}

TEST(ChosenFiles, TakesWhatDescribesTheModel) {
  EXPECT_THAT(describing_files({"config.json", "README.md", "chat_template.jinja", "merges.txt", "tokenizer.model",
                                "o200k.tiktoken", "original/params.json", "pytorch_model.bin.index.json", "a.onnx",
                                "model.safetensors.index.json", ".."}),
              ElementsAre("config.json", "chat_template.jinja", "merges.txt", "tokenizer.model", "o200k.tiktoken",
                          "model.safetensors.index.json"));
}

TEST_F(HubCache, TakesShardsThatIndexNames) {
  const std::string index = "model.safetensors.index.json";
  std::ofstream(snapshot / index) << R"({"weight_map": {"x": "b.safetensors", "y": "a.safetensors"}})";
  EXPECT_THAT(weight_files({index, "a.safetensors", "b.safetensors", "c.safetensors"}, snapshot),
              ElementsAre("a.safetensors", "b.safetensors"));
  EXPECT_THROW(weight_files({index, "a.safetensors"}, snapshot), Error);
  std::ofstream(snapshot / index) << R"({"weight_map": {"x": "../b.safetensors"}})";
  EXPECT_THROW(weight_files({index, "../b.safetensors"}, snapshot), Error);
}

}  // namespace
}  // namespace gputrain::hub
