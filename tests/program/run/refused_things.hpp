// The jobs, files and trained models of which refusals_test.cpp has the rows.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "../../../src/cli/commands.hpp"
#include "gputrain/data/png.hpp"
#include "support/byte_tokenizer.hpp"
#include "support/program.hpp"

namespace gputrain::testing_support {

namespace fs = std::filesystem;
using Words = std::vector<std::string>;

/// The jobs that the rows change; @ is the folder of the test.
inline const std::map<std::string, std::string> kJobs{
    {"images",
     "model: {type: mlp}\n"
     "data: {train: {format: synthetic, samples: 32, num_classes: 3}, image: {size: 8}}\n"},
    {"files", "model: {type: mlp}\ndata: {train: {path: '@'}, image: {size: 8}}\n"},
    {"pixels",
     "model: {type: unet, config: {channels: [4, 8]}}\n"
     "data: {train: {format: segmentation, path: '@/pixels', num_classes: 2}, image: {size: 8}}\n"},
    {"tokens",
     "model: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 16, block_size: 8}}\n"
     "data: {train: {format: synthetic, samples: 32, vocab_size: 67}}\n"},
    {"text",
     "model: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 16, block_size: 8}}\n"
     "data: {train: {format: text, path: '@/text.txt'}, text: {tokenizer: published, tokenizer_path: "
     "'@/tokenizer'}}\n"},
    {"words",
     "model: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 16, block_size: 8}}\n"
     "data: {train: {format: text, path: '@/text.txt'}, text: {tokenizer: words}}\n"},
    {"rotary",
     "model: {type: gpt, config: {n_layer: 1, n_head: 2, n_embd: 16, block_size: 8, position: rotary, norm: rmsnorm, "
     "activation: swiglu, bias: false}}\n"
     "data: {train: {format: text, path: '@/text.txt'}, text: {tokenizer: published, tokenizer_path: "
     "'@/tokenizer'}}\n"},
    {"pretrained",
     "model: {type: gpt, pretrained: '@/base'}\n"
     "data: {train: {format: text, path: '@/text.txt'}, text: {tokenizer: published, tokenizer_path: "
     "'@/tokenizer'}}\n"},
    {"classes",
     "model: {type: bert, config: {n_layer: 1, n_head: 2, n_embd: 16, head: classifier}}\n"
     "data: {train: {format: jsonl, path: '@/classes.jsonl'}, text: {tokenizer: bytes, max_length: 16}}\n"},
};
inline constexpr const char* kRest =
    "schema: 1\nname: small\ndevice: cpu\ntrain: {max_steps: 2, global_batch_size: 4}\noptimizer: {type: sgd, lr: "
    "0.1}\n";

inline std::string with_folder(std::string text, const std::string& folder) {
  for (size_t at = text.find('@'); at != std::string::npos; at = text.find('@', at)) text.replace(at, 1, folder);
  return text;
}

/// A PEFT adapter of '@/base', but for `changes`; null removes a key.
inline nlohmann::json adapter_config(const nlohmann::json& changes) {
  nlohmann::json config{{"peft_type", "LORA"},
                        {"r", 2},
                        {"lora_alpha", 4},
                        {"target_modules", {"c_attn"}},
                        {"base_model_name_or_path", "@/base"}};
  config.merge_patch(changes);
  return config;
}

/// The config.json of a published model, but for `changes`.
inline nlohmann::json published_config(const char* type, const nlohmann::json& changes) {
  nlohmann::json config{{"model_type", type},           {"hidden_size", 16},       {"num_hidden_layers", 1},
                        {"num_attention_heads", 2},     {"intermediate_size", 32}, {"vocab_size", 50},
                        {"max_position_embeddings", 20}};
  config.update(changes);
  return config;
}

/// Makes the files once for all tests, and models when they are wanted, trained for two steps.
class RefusedThings : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TemporaryFolder;
    write_jobs();
    write_texts();
    write_images();
    write_published();
  }
  static void TearDownTestSuite() {
    delete folder_;
    folder_ = nullptr;
  }

  static std::string at(const std::string& name) { return *folder_ / name; }
  static void write(const std::string& name, const std::string& content) { folder_->write(name, content); }

  static void write_jobs() {
    for (const auto& [name, text] : kJobs) write(name + ".yaml", kRest + with_folder(text, at(".")));
  }

  static void write_lines(const std::string& name, const nlohmann::json& record, int count = 8) {
    std::string lines;
    for (int i = 0; i < count; ++i) lines += record.dump() + "\n";
    write(name, lines);
  }

  static void write_texts() {
    write("tokenizer/tokenizer.json", byte_tokenizer({}).dump());
    std::string text, classes;
    for (int i = 0; i < 60; ++i) text += fmt::format("the {} cats sat on the mat {} times;\n", i % 10, i % 7);
    write("text.txt", text);
    for (int i = 0; i < 32; ++i)
      classes += fmt::format("{{\"text\": \"word {} here\", \"label\": \"{}\", \"other\": 1}}\n", i % 3, "ab"[i % 2]);
    write("classes.jsonl", classes);
    write_lines("others.jsonl", {{"text", "abc"}, {"label", "zz"}});
    write_lines("tags.jsonl", {{"tokens", {"a", "b"}}, {"tags", {"X"}}});
    write_lines("short.jsonl", {{"text", "a"}});
    write_lines("messages.jsonl", {{"messages", "\"a\""}});
    write_lines("asked.jsonl", {{"prompt", {{{"role", "user"}, {"content", "a"}}}}, {"completion", "b"}});
    write_lines("prompts.jsonl", {{"prompt", "hello"}, {"x", "b"}});
    write_lines("empty-text.jsonl", {{"text", " "}}, 1);
    write_lines("empty-prompt.jsonl", {{"prompt", " "}, {"answer", "b"}, {"max_new_tokens", 2}}, 1);
    write("list.json", "[{\"text\": \"a\"}, , {\"text\": \"b\"}]");
    write("names.csv", "text,label\n");
    write("quote.csv", "text,label\n\"never closed,a\n");
  }

  static void write_images() {
    const std::vector<uint8_t> colours(8 * 8 * 3, 90), grey(8 * 8, 1);
    const std::string image = data::png_of({.pixels = colours.data(), .width = 8, .height = 8, .channels = 3}),
                      mask = data::png_of({.pixels = grey.data(), .width = 8, .height = 8, .channels = 1});
    for (const char* name : {"a.png", "a.jpg", "huge/a/a.png", "huge/b/a.png"}) write(name, image);
    for (int i = 0; i < 8; ++i) {
      write(fmt::format("pixels/images/{}.png", i), image);
      write(fmt::format("pixels/masks/{}.png", i), mask);
    }
    fs::resize_file(at("huge/a/a.png"), uintmax_t{3} << 30);  // takes no room: the rest is a hole
    write("list.csv", "image,label\na,1\n");
    write_lines("bytes.jsonl", {{"image", {{"bytes", ""}}}, {"label", 1}}, 1);
    write("packed.csv", std::string("PK\x03\x04", 4) + std::string(100, '\0'));
    const auto idx = [](std::string sizes, size_t count) {
      const char dimensions = static_cast<char>(sizes.size());
      std::string file{'\0', '\0', '\x08', dimensions};
      for (const char size : sizes) file += std::string(3, '\0') + size;
      return file + std::string(count, '\1');
    };
    for (const auto& [name, labels] : {std::pair("numbers", '\3'), std::pair("digits", '\2')}) {
      write(std::string(name) + "/train-images-idx3-ubyte", idx("\2\4\4", 32));
      write(std::string(name) + "/train-labels-idx1-ubyte", idx({labels}, static_cast<size_t>(labels)));
    }
  }

  static void write_published() {
    write("weights.pt", "");
    write("two.safetensors", "\1\2");
    write("deep/config.json", published_config("llama", nlohmann::json::object()).dump());
    write("deep/model.safetensors.index.json", std::string(5000, '['));
    write("gemma-window/config.json", published_config("gemma3_text", {{"sliding_window", nullptr}}).dump());
    write("gemma-layers/config.json", published_config("gemma3_text", {{"layer_types", {"odd"}}}).dump());
    write("quantised/config.json", published_config("llama", {{"quantization_config", {{"bits", 4}}}}).dump());
    write("nameless/config.json", published_config("", nlohmann::json::object()).dump());
    write("roberta-padding/config.json", published_config("roberta", {{"pad_token_id", -1}}).dump());
    write("roberta-positions/config.json", published_config("roberta", {{"max_position_embeddings", 2}}).dump());
    const auto adapter = [](const std::string& name, const nlohmann::json& changes) {
      write("adapter-" + name + "/adapter_config.json", with_folder(adapter_config(changes).dump(), at(".")));
    };
    adapter("init", {{"init_lora_weights", "pissa"}});
    adapter("alpha", {{"lora_alpha", 0}});
    adapter("dropout", {{"lora_dropout", 1}});
    adapter("targets", {{"target_modules", nullptr}});
    adapter("list", {{"target_modules", 3}});
    adapter("pattern", {{"rank_pattern", {{"c_attn", 0}}}});
    adapter("twice", {{"rank_pattern", {{"c_attn", 3}, {"attn.c_attn", 4}}}});
    adapter("alone", nlohmann::json::object());
    adapter("head", {{"target_modules", {"lm_head"}}});
    adapter("base", {{"base_model_name_or_path", nullptr}});
    adapter("classes", {{"task_type", "SEQ_CLS"}});
  }

  /// Trains side by side: each start takes longer than the two steps.
  static void train(const std::map<std::string, Words>& runs) {
    std::vector<std::unique_ptr<Program>> programs;
    for (const auto& [folder, words] : runs) {
      std::vector<std::string> all{gputrain_path(), "run"};
      all.insert(all.end(), words.begin(), words.end());
      all.insert(all.end(), {"--output-dir", at(folder)});
      programs.push_back(std::make_unique<Program>(all, std::map<std::string, std::string>{{"OMP_NUM_THREADS", "1"}}));
    }
    for (const auto& program : programs) {
      const Result result = program->wait();
      ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
    }
  }

  /// The folder of a published model, from which the rows begin.
  static void make_base() {
    if (fs::exists(at("base"))) return;
    train({{"text", {at("text.yaml")}}});
    app::export_model_command({.folder = at("text"), .out = at("base"), .format = "hf"});
  }

  static void make_models() {
    make_base();
    if (fs::exists(at("images"))) return;
    train({{"images", {at("images.yaml")}},
           {"masks", {at("pixels.yaml")}},
           {"words", {at("words.yaml")}},
           {"rotary", {at("rotary.yaml")}},
           {"classes", {at("classes.yaml")}},
           {"adapted", {at("pretrained.yaml"), "--set", "model.adapter.type=lora"}}});
    const auto changed = [](const std::string& name, const nlohmann::json& changes) {
      fs::copy(at("classes"), at(name), fs::copy_options::recursive);
      auto told = nlohmann::json::parse(read_file(at(name) + "/model.json"));
      told.merge_patch(changes);
      write(name + "/model.json", told.dump());
    };
    changed("tomorrow", {{"schema", 2}});
    changed("fieldless", {{"fields", nlohmann::json::array()}});
    changed("unnamed", {{"class_names", {"a"}}});
    changed("without-gives", {{"gives", nullptr}});
  }

  inline static TemporaryFolder* folder_ = nullptr;
};

}  // namespace gputrain::testing_support
