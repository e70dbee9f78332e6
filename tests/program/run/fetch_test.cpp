// `gputrain fetch` from a server that behaves like the Hugging Face Hub, and jobs that name what it fetched.
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.hpp"
#include "support/python_reference.hpp"
#include "support/sanitizers.hpp"
#include "support/small_job.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using namespace testing_support;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

/// More than a socket's buffers hold, so that a connection breaks in the middle.
const std::string kWeights = [] {
  std::string text;
  for (int i = 0; text.size() < 3'000'000; ++i) text += std::to_string(i * 7919);
  return text;
}();

struct FetchTest : ::testing::Test {
  FetchTest() {
    fs::create_directories(state);
    server = std::make_unique<Program>(std::vector<std::string>{
        "python3", GPUTRAIN_SOURCE_DIR "/tests/support/fake_hub.py", folder / "models", state});
    if (!server->prints("listening")) throw std::runtime_error("the fake hub does not start");
    environment = {{"HF_ENDPOINT", read_file(state + "/address")},
                   {"HF_HOME", folder / "hf"},
                   {"HF_HUB_CACHE", folder / "hf/hub"},
                   {"HUGGINGFACE_HUB_CACHE", folder / "hf/hub"},
                   {"HF_HUB_OFFLINE", ""},
                   {"TRANSFORMERS_OFFLINE", ""},
                   {"HF_TOKEN", ""},
                   {"HF_TOKEN_PATH", folder / "hf/token"},
                   {"no_proxy", "127.0.0.1"}};
  }

  void serve(const std::string& name, const std::string& behaviour = "") const {
    folder.write("models/" + name + "/config.json", "{}");
    folder.write("models/" + name + "/model.safetensors", kWeights);
    folder.write("models/" + name + "/pytorch_model.bin", "pickled");
    folder.write("models/" + name + "/onnx/config.json", "{}");
    if (!behaviour.empty()) folder.write("models/" + name + "/.behaviour", behaviour);
  }

  Result fetch(const std::string& name, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"fetch", name};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return gputrain(arguments, environment);
  }

  /// The requests since the last call.
  std::string requests() const {
    std::string all = read_file(state + "/requests");
    fs::remove(state + "/requests");
    return all;
  }

  std::string cached(const std::string& name) const { return folder / ("hf/hub/models--" + name); }

  fs::path snapshot(const std::string& name) const {
    return fs::path(cached(name)) / "snapshots" / read_file(cached(name) + "/refs/main");
  }

  const TemporaryFolder folder;
  const std::string state = folder / "state";
  std::unique_ptr<Program> server;
  std::map<std::string, std::string> environment;
};

TEST_F(FetchTest, FillsCacheOnce) {
  serve("org/plain");
  const Result first = fetch("org/plain");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(read_file(snapshot("org--plain") / "model.safetensors"), kWeights);
  EXPECT_EQ(read_file(snapshot("org--plain") / "config.json"), "{}");
  EXPECT_FALSE(fs::exists(snapshot("org--plain") / "pytorch_model.bin"));
  EXPECT_FALSE(fs::exists(snapshot("org--plain") / "onnx"));
  EXPECT_TRUE(fs::read_symlink(snapshot("org--plain") / "config.json").string().starts_with("../../blobs/"));
  EXPECT_THAT(requests(), HasSubstr("cdn GET"));
  const Result second = fetch("org/plain");
  EXPECT_THAT(second.out, HasSubstr("all were here"));
  EXPECT_THAT(requests(), AllOf(HasSubstr("/revision/main"), Not(HasSubstr("/resolve/")), Not(HasSubstr("cdn"))));
  std::ofstream(snapshot("org--plain") / "model.safetensors") << "damaged";
  EXPECT_EQ(fetch("org/plain").exit_code, 0);
  EXPECT_EQ(read_file(snapshot("org--plain") / "model.safetensors"), kWeights);
}

TEST_F(FetchTest, LeavesWeightsOutWhereItIsToldSo) {
  serve("org/plain");
  const Result first = fetch("org/plain", {"--no-weights"});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_THAT(first.err, Not(HasSubstr("no weights")));
  EXPECT_EQ(read_file(snapshot("org--plain") / "config.json"), "{}");
  EXPECT_FALSE(fs::exists(snapshot("org--plain") / "model.safetensors"));
  EXPECT_EQ(fetch("org/plain").exit_code, 0);
  EXPECT_EQ(read_file(snapshot("org--plain") / "model.safetensors"), kWeights);
}

TEST_F(FetchTest, SharesCacheWithPackage) {
  GPUTRAIN_NEED_REFERENCE("huggingface_hub");
  serve("org/ours");
  serve("org/theirs");
  ASSERT_EQ(fetch("org/ours").exit_code, 0);
  const auto reference = [&](const std::string& what, const std::string& name) {
    const std::string script = GPUTRAIN_SOURCE_DIR "/tests/program/run/hub_reference.py";
    Program program({testing::reference_python(), script, what, name}, environment);
    const Result result = program.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out;
  };
  EXPECT_EQ(reference("local", "org/ours"), snapshot("org--ours").string() + "\n");
  const std::string fetched = reference("fetch", "org/theirs");
  EXPECT_EQ(fetched, snapshot("org--theirs").string() + "\n");
  requests();
  const Result again = fetch("org/theirs");
  EXPECT_THAT(again.out, HasSubstr("all were here"));
  EXPECT_THAT(requests(), Not(HasSubstr("/resolve/")));
}

TEST_F(FetchTest, AsksNobodyWhereItIsToldSo) {
  serve("org/plain");
  environment["HF_HUB_OFFLINE"] = "1";
  const Result nothing = fetch("org/plain");
  EXPECT_EQ(nothing.exit_code, 6);
  EXPECT_THAT(nothing.err, AllOf(HasSubstr("HF_HUB_OFFLINE is set"), HasSubstr("not in " + (folder / "hf/hub"))));
  EXPECT_FALSE(fs::exists(state + "/requests"));
  environment["HF_HUB_OFFLINE"] = "";
  ASSERT_EQ(fetch("org/plain").exit_code, 0);
  requests();
  environment["TRANSFORMERS_OFFLINE"] = "true";
  const Result cached_one = fetch("org/plain");
  EXPECT_EQ(cached_one.exit_code, 0) << cached_one.err;
  EXPECT_THAT(cached_one.out, AllOf(HasSubstr("TRANSFORMERS_OFFLINE is set"), HasSubstr("2 files")));
  fs::remove(fs::canonical(snapshot("org--plain") / "model.safetensors"));
  EXPECT_THAT(fetch("org/plain").err, HasSubstr("model.safetensors is a link to a file that is not there"));
  EXPECT_FALSE(fs::exists(state + "/requests"));
}

TEST_F(FetchTest, NamesTheCommandWhereAModelIsNotAllHere) {
  const auto hint = [&](const std::string& missing) {
    const Result result = gputrain({"generate", "org/plain", "--prompt", "a"}, environment);
    EXPECT_EQ(result.exit_code, missing == "config.json" ? 2 : 3);
    EXPECT_THAT(result.err, HasSubstr("gputrain fetch org/plain")) << missing;
    const Result by_path = gputrain({"generate", snapshot("org--plain").string(), "--prompt", "a"}, environment);
    EXPECT_THAT(by_path.err, HasSubstr("gputrain fetch org/plain")) << missing;
  };
  serve("org/plain");
  ASSERT_EQ(fetch("org/plain").exit_code, 0);
  std::ofstream(snapshot("org--plain") / "config.json")
      << R"({"model_type": "llama", "vocab_size": 258, "hidden_size": 16, "intermediate_size": 32,
             "num_hidden_layers": 1, "num_attention_heads": 2, "max_position_embeddings": 64})";
  fs::remove(fs::canonical(snapshot("org--plain") / "model.safetensors"));  // the blob
  hint("model.safetensors");
  std::ofstream(snapshot("org--plain") / "model.safetensors.index.json")
      << R"({"weight_map": {"a": "model-00001-of-00001.safetensors"}})";
  hint("a shard");
  fs::remove(snapshot("org--plain") / "config.json");
  hint("config.json");
}

TEST_F(FetchTest, ContinuesWhereConnectionBroke) {
  serve("org/plain", "breaks");
  const Result result = fetch("org/plain");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(read_file(snapshot("org--plain") / "model.safetensors"), kWeights);
  EXPECT_THAT(requests(), HasSubstr("range=bytes=" + std::to_string(kWeights.size() / 2) + "-"));
}

TEST_F(FetchTest, ContinuesWhatAnEarlierCallLeft) {
  serve("org/plain");
  ASSERT_EQ(fetch("org/plain").exit_code, 0);
  const fs::path link = snapshot("org--plain") / "model.safetensors", blob = fs::canonical(link);
  const auto leave = [&](const std::string& content) {
    fs::remove(blob);
    std::ofstream(blob.string() + ".incomplete") << content;
    requests();
    EXPECT_EQ(fetch("org/plain").exit_code, 0);
    EXPECT_EQ(read_file(link), kWeights);
    return requests();
  };
  EXPECT_THAT(leave(kWeights.substr(0, 1000)), HasSubstr("range=bytes=1000-"));
  EXPECT_THAT(leave("other" + kWeights.substr(5, 995)), HasSubstr("range=bytes=1000-"));  // then from the start
  EXPECT_THAT(leave(kWeights), Not(HasSubstr("cdn")));
  EXPECT_THAT(leave(kWeights + "more"), HasSubstr("cdn"));
}

TEST_F(FetchTest, KeepsWhatHasArrivedWhenInterrupted) {
  serve("org/plain", "stalls");
  const auto arrived = [&] {
    std::error_code ignored;
    for (const auto& file : fs::directory_iterator(cached("org--plain") + "/blobs", ignored))
      if (file.path().extension() == ".incomplete" && file.file_size(ignored) == kWeights.size() / 2) return true;
    return false;
  };
  Program interrupted({gputrain_path(), "fetch", "org/plain"}, environment);
  const auto end = std::chrono::steady_clock::now() + testing::patience(std::chrono::seconds(20));
  while (!arrived() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  ASSERT_TRUE(arrived());
  interrupted.signal(SIGINT);
  EXPECT_EQ(interrupted.wait().exit_code, 128 + SIGINT);
  requests();
  ASSERT_EQ(fetch("org/plain").exit_code, 0);
  EXPECT_EQ(read_file(snapshot("org--plain") / "model.safetensors"), kWeights);
  EXPECT_THAT(requests(), HasSubstr("range=bytes=" + std::to_string(kWeights.size() / 2) + "-"));
}

TEST_F(FetchTest, SendsTokenToTheHubAlone) {
  serve("org/gated", "gated");
  const Result without = fetch("org/gated");
  EXPECT_EQ(without.exit_code, 3);
  EXPECT_THAT(without.err, AllOf(HasSubstr("accepted its licence"), HasSubstr("HF_TOKEN")));
  folder.write("hf/token", "hf_good\n");
  requests();
  const Result with = fetch("org/gated");
  ASSERT_EQ(with.exit_code, 0) << with.err;
  std::istringstream lines(requests());
  for (std::string line; std::getline(lines, line);)
    EXPECT_THAT(line, EndsWith(line.starts_with("cdn") ? "token=none" : "token=Bearer hf_good"));
}

TEST_F(FetchTest, AsksBusyServerAgain) {
  serve("org/plain", "busy");
  const Result result = fetch("org/plain");
  EXPECT_EQ(result.exit_code, 0) << result.err;
}

TEST_F(FetchTest, RefusesOtherContent) {
  serve("org/plain", "altered");
  const Result result = fetch("org/plain");
  EXPECT_EQ(result.exit_code, 3);
  EXPECT_THAT(result.err, HasSubstr("another SHA-256"));
  EXPECT_FALSE(fs::exists(cached("org--plain") + "/refs/main"));
}

TEST_F(FetchTest, SaysWhatTheHubRefuses) {
  serve("org/plain");
  serve("org/huge", "huge");
  EXPECT_THAT(fetch("org/none").err, AllOf(HasSubstr("no public model org/none"), HasSubstr("HF_TOKEN")));
  EXPECT_THAT(fetch("org/plain", {"--revision", "v9"}).err, HasSubstr("org/plain has no revision v9"));
  const Result huge = fetch("org/huge");
  EXPECT_EQ(huge.exit_code, 6);
  EXPECT_THAT(huge.err, AllOf(HasSubstr("there is no room"), HasSubstr("HF_HUB_CACHE")));
  EXPECT_EQ(fetch("/a/path").exit_code, 2);
}

TEST_F(FetchTest, FollowsModelThatHasMoved) {
  serve("org/plain");
  serve("old", "moved");
  const Result result = fetch("old");
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(read_file(snapshot("old") / "model.safetensors"), kWeights);
}

TEST_F(FetchTest, FetchedModelIsReadByName) {
  const std::string trained = folder / "trained";
  const Result first = gputrain({"run", write_gpt_job(folder), "--output-dir", trained});
  ASSERT_EQ(first.exit_code, 0) << first.err;
  for (const char* file : {"config.json", "model.safetensors"})
    if (fs::exists(trained + "/" + file))
      folder.write("models/org/small/" + std::string(file), read_file(trained + "/" + file));
  const std::string job = write_gpt_job(folder);
  const auto start = [&](const std::string& pretrained) {
    return gputrain({"run", job, "--output-dir", folder / "run", "--set", "model.pretrained=" + pretrained, "--set",
                     "checkpoint.resume=never"},
                    environment);
  };
  const Result missing = start("org/small");
  EXPECT_EQ(missing.exit_code, 3);
  EXPECT_THAT(missing.err, HasSubstr("try: gputrain fetch org/small"));
  ASSERT_EQ(fetch("org/small").exit_code, 0);
  const Result by_name = start("org/small");
  ASSERT_EQ(by_name.exit_code, 0) << by_name.err;
  EXPECT_THAT(by_name.out, HasSubstr("from org/small"));
  const auto losses = losses_of(folder / "run");
  EXPECT_THAT(read_file(folder / "run/job.resolved.yaml"), HasSubstr("pretrained: org/small"));
  ASSERT_EQ(start(trained).exit_code, 0);
  EXPECT_EQ(losses_of(folder / "run"), losses);
}

}  // namespace
}  // namespace gputrain::app
