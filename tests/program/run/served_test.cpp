// What was trained is what is served: a model that has learned conversations answers and stops, here and in
// transformers, from its run folder and from what is exported.
#include <array>
#include <csignal>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "support/byte_tokenizer.hpp"
#include "support/program.hpp"
#include "support/python_reference.hpp"

namespace gputrain::app {
namespace {

using namespace testing_support;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

namespace fs = std::filesystem;

/// A chat template in the manner of a published family. The first special token ends texts, the second turns.
struct Style {
  std::string name;
  std::vector<std::string> special;
  std::string source;
  std::string before_answer = {};  // what the assistant says before its answer to the last question
};

const Style kMarked{"marked",
                    {"<|endoftext|>", "<|im_end|>", "<|im_start|>"},
                    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' -}}"
                    "{%- endfor -%}{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}"};
/// A template like Llama 3.2's: the day stands before everything.
const Style kDated{"dated",
                   {"<|end_of_text|>", "<|eot_id|>", "<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>"},
                   "{{- '<|begin_of_text|>' -}}{%- macro head(role) -%}"
                   "{{- '<|start_header_id|>' + role + '<|end_header_id|>\\n\\n' -}}{%- endmacro -%}"
                   "{{- head('system') + 'Today: ' + strftime_now('%d %b %Y') + '<|eot_id|>' -}}"
                   "{%- for m in messages -%}{{- head(m.role) + m.content | trim + '<|eot_id|>' -}}{%- endfor -%}"
                   "{%- if add_generation_prompt -%}{{- head('assistant') -}}{%- endif -%}"};

/// A template like Phi-3's: the token that ends texts stands where no answer is asked for.
const Style kEnded{
    "ended",
    {"<|endoftext|>", "<|end|>", "<|user|>", "<|assistant|>"},
    "{%- for m in messages -%}{{- '<|' + m.role + '|>\\n' + m.content + '<|end|>\\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|assistant|>\\n' -}}{%- else -%}{{- eos_token -}}{%- endif -%}"};
/// A template like Qwen3's: the answer to the last question alone has thoughts.
const Style kThoughtful{
    "thoughtful",
    {"<|endoftext|>", "<|im_end|>", "<|im_start|>"},
    "{%- for m in messages -%}{{- '<|im_start|>' + m.role + '\\n' -}}"
    "{%- if m.role == 'assistant' and loop.last -%}{{- '<think>\\n\\n</think>\\n\\n' -}}{%- endif -%}"
    "{{- m.content + '<|im_end|>\\n' -}}{%- endfor -%}"
    "{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}",
    "<think>\n\n</think>\n\n"};

/// A run that learns conversations, and what answers with it.
struct Conversations {
  TemporaryFolder folder;
  const std::string run = folder / "run";

  /// A tokenizer's folder, four conversations of two turns each, and a job.
  std::string write_job(const Style& style, const std::string& more = "") const {
    folder.write("base/tokenizer.json", byte_tokenizer(style.special).dump());
    folder.write("base/tokenizer_config.json", json{{"tokenizer_class", "PreTrainedTokenizerFast"},
                                                    {"eos_token", style.special[0]},
                                                    {"chat_template", "{{ raise_exception('another one') }}"}}
                                                   .dump());
    folder.write("base/generation_config.json", json{{"eos_token_id", 256}, {"pad_token_id", 256}}.dump());
    std::string lines;
    for (const auto& [first, second] : {std::pair("ab", "cd"), {"cd", "ef"}, {"ef", "gh"}, {"gh", "ab"}})
      lines += json{{"messages", conversation(first, second)}}.dump() + "\n";
    return folder.write(
        "job.yaml",
        "schema: 1\nmodel: {type: gpt, config: {n_layer: 2, n_head: 2, n_embd: 32, block_size: 192, position: rotary, "
        "norm: rmsnorm, activation: swiglu}}\n"
        "data: {train: {path: " +
            folder.write("train.jsonl", lines) + ", format: jsonl}, text: {tokenizer: published, tokenizer_path: " +
            (folder / "base") + ", chat_template: " + folder.write("template.jinja", style.source) +
            "}}\ntrain: {max_steps: 160, global_batch_size: 4}\noptimizer: {type: adamw, lr: 1e-2}\n" + more);
  }

  /// Makes a conversation in which each word of the user is answered with that word twice.
  static json conversation(const std::string& first, const std::string& second, bool is_answered = true) {
    json messages{{{"role", "user"}, {"content", first}},
                  {{"role", "assistant"}, {"content", first + first}},
                  {{"role", "user"}, {"content", second}}};
    if (is_answered) messages.push_back({{"role", "assistant"}, {"content", second + second}});
    return messages;
  }

  /// What our generate writes behind a prompt.
  static json written(const std::string& from, const json& prompt) {
    const Result result = gputrain({"generate", from, "--prompt", prompt, "--json", "--max-new-tokens", "24"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.exit_code == 0 ? json::parse(result.out) : json();
  }

  /// What transformers answers with each of these models to the question that ends a conversation. A model is a folder,
  /// or FOLDER:ADAPTER.
  json answered(const std::vector<std::string>& models) const {
    std::vector<std::string> words{folder.write("asked.json", conversation("ab", "cd", false).dump()),
                                   folder / "answers.json"};
    words.insert(words.end(), models.begin(), models.end());
    EXPECT_TRUE(gputrain::testing::run_reference("program/run/served_reference.py", words));
    return json::parse(read_file(folder / "answers.json"));
  }
};

struct Served : ::testing::Test, Conversations {};

void expect_answers(const Style& style, const std::string& from, const json& theirs) {
  SCOPED_TRACE(style.name + " from " + from);
  EXPECT_EQ(theirs["end"], json({256, 257}));
  json answer = json::array();
  for (const char letter : style.before_answer + "cdcd") answer.push_back(letter);
  answer.push_back(257);
  EXPECT_EQ(theirs["answer"], answer);
  const Result ours = gputrain({"generate", from, "--chat", "--prompt", "cd"});
  EXPECT_EQ(ours.out, "cdcd\n") << ours.err;
  EXPECT_EQ(read_file(from + "/chat_template.jinja"), style.source);
  const json config = json::parse(read_file(from + "/config.json"));
  EXPECT_EQ(config["eos_token_id"], json({256, 257}));
  EXPECT_EQ(config["pad_token_id"], 256);
  EXPECT_EQ(json::parse(read_file(from + "/tokenizer_config.json"))["chat_template"], style.source);
}

TEST(ServedStyles, AnswerAndStopHereAndInTransformers) {
  GPUTRAIN_NEED_REFERENCE("transformers");
  const std::array styles{kMarked, kDated, kEnded, kThoughtful};
  std::array<Conversations, styles.size()> of_styles;
  std::vector<std::string> models;
  for (size_t i = 0; i < styles.size(); ++i) {
    const auto& [folder, run] = of_styles[i];
    const Result trained = gputrain({"run", of_styles[i].write_job(styles[i]), "--output-dir", run});
    ASSERT_EQ(trained.exit_code, 0) << trained.err;
    fs::remove(folder / "template.jinja");  // the run folder has its own
    fs::remove_all(folder / "base");
    ASSERT_EQ(gputrain({"export", run, folder / "hf", "--format", "hf", "--dtype", "f32"}).exit_code, 0);
    models.insert(models.end(), {run, folder / "hf"});
  }
  const json answers = of_styles[0].answered(models);
  for (size_t i = 0; i < models.size(); ++i) expect_answers(styles.at(i / 2), models[i], answers[models[i]]);
}

TEST_F(Served, WhatACheckpointSaysIsWhatTheRunHasLearned) {
  const Result trained = gputrain({"run",
                                   write_job(kMarked,
                                             "checkpoint: {interval: 160}\neval: {sample: {prompt: "
                                             "\"<|im_start|>user\\nab<|im_end|>\\n<|im_start|>"
                                             "assistant\\n\", temperature: 0}}\n"),
                                   "--output-dir", run});
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_THAT(trained.out, HasSubstr("assistant\nabab\n"));  // the sample ends there
  folder.write("template.jinja", "{{ raise_exception('changed since') }}");
  for (const char* file : {"model.safetensors", "config.json"}) fs::remove(run + "/" + file);
  const Result ours = gputrain({"generate", run + "/ckpt/latest", "--chat", "--prompt", "ef"});
  EXPECT_EQ(ours.out, "efef\n") << ours.err;
  ASSERT_EQ(gputrain({"export", run + "/ckpt/latest", folder / "m.gguf", "--format", "gguf"}).exit_code, 0);
  const std::string gguf = read_file(folder / "m.gguf");
  EXPECT_THAT(gguf, HasSubstr("<|im_start|>' + m.role"));
  const size_t at = gguf.find("tokenizer.ggml.eot_token_id");
  ASSERT_NE(at, std::string::npos);
  EXPECT_EQ(gguf.substr(at + std::string("tokenizer.ggml.eot_token_id").size() + 4, 2), "\x01\x01");  // 257
}

TEST_F(Served, AnAdapterBringsTemplateAndEnd) {
  GPUTRAIN_NEED_REFERENCE("peft");
  const std::string job = write_job(kMarked, "checkpoint: {interval: 200}\n"), base = folder / "model";
  ASSERT_EQ(gputrain({"run", job, "--output-dir", base, "--set", "train.max_steps=1", "--set",
                      "model.config.tie_embeddings=false"})
                .exit_code,
            0);
  std::vector<std::string> words{"run", job, "--output-dir", run};
  for (const char* const set : {"train.max_steps=200", "model.config.tie_embeddings=false", "model.adapter.type=lora",
                                "model.adapter.rank=16", "model.adapter.modules_to_save=[lm_head, embed_tokens]"})
    words.insert(words.end(), {"--set", set});
  words.insert(words.end(), {"--set", "model.pretrained=" + base});
  const Result trained = gputrain(words);
  ASSERT_EQ(trained.exit_code, 0) << trained.err;
  EXPECT_EQ(gputrain({"generate", run, "--chat", "--prompt", "cd"}).out, "cdcd\n");
  const std::string written = folder / "written", of_checkpoint = folder / "of_checkpoint";
  ASSERT_EQ(gputrain({"export", run, written, "--format", "adapter"}).exit_code, 0);
  const Result exported = gputrain({"export", run + "/ckpt/latest", of_checkpoint, "--format", "adapter"});
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const json answers = answered({base + ":" + written, base + ":" + of_checkpoint});
  for (const std::string& from : {written, of_checkpoint}) {
    const json& theirs = answers[base + ":" + from];
    EXPECT_EQ(theirs["end"], json({256, 257})) << from;
    EXPECT_EQ(theirs["answer"], json({'c', 'd', 'c', 'd', 257})) << from;
    EXPECT_EQ(read_file(from + "/adapter_model.safetensors"), read_file(written + "/adapter_model.safetensors"));
  }
}

TEST_F(Served, TextsKeepTheDayOfTheFirstAttempt) {
  const std::string job = write_job(kDated, "checkpoint: {interval: 1}\nlog: {interval: 1}\n");
  const auto start = [&](const std::string& name, const char* zone) {
    return std::make_unique<Program>(std::vector<std::string>{gputrain_path(), "run", job, "--output-dir",
                                                              folder / name, "--set", "train.max_steps=12"},
                                     std::map<std::string, std::string>{{"TZ", zone}});
  };
  const auto train = [&](const std::string& name, const char* zone) { return start(name, zone)->wait(); };
  ASSERT_EQ(train("whole", "UTC+12").exit_code, 0);
  const auto killed = start("run", "UTC+12");
  ASSERT_TRUE(killed->prints("step    3/"));
  killed->signal(SIGKILL);
  ASSERT_EQ(killed->wait().exit_code, 128 + SIGKILL);
  const Result resumed = train("run", "UTC-12");  // a day later
  ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, AllOf(HasSubstr("resume"), Not(HasSubstr("changed"))));
  EXPECT_EQ(read_file(run + "/model.safetensors"), read_file(folder / "whole/model.safetensors"));
  EXPECT_EQ(gputrain({"data", "audit", run}, {{"TZ", "UTC-12"}}).exit_code, 0);
  const Result replayed = gputrain({"replay", run, "--step", "12"}, {{"TZ", "UTC-12"}});
  EXPECT_EQ(replayed.exit_code, 0) << replayed.err;
  ASSERT_EQ(train("other", "UTC-12").exit_code, 0);
  EXPECT_NE(read_file(folder / "other/model.safetensors"), read_file(folder / "whole/model.safetensors"));
}

}  // namespace
}  // namespace gputrain::app
