#include "ops/cudnn/asked_graph.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <future>

#include <gtest/gtest.h>

namespace gputrain::testing_support {
namespace {

/// The program's output, or how it ended.
std::string answer_to(const AskedGraph& asked) {
  const std::string command = "LD_LIBRARY_PATH=" GPUTRAIN_DRIVER_STUB
                              ":$LD_LIBRARY_PATH timeout 120 " GPUTRAIN_GRAPH_CHECK " " +
                              asked.arguments() + " 2>&1";
  FILE* program = ::popen(command.c_str(), "r");
  if (program == nullptr) return "cannot be started";
  std::string said;
  std::array<char, 512> part{};
  while (std::fgets(part.data(), part.size(), program) != nullptr) said += part.data();
  const int status = ::pclose(program);
  return status == 0 ? said : "ended with " + std::to_string(status) + ": " + said;
}

bool is_known_to_be_there(const std::string& kind, const std::string& type, const std::string& determinism,
                          const Conv& conv) {
  if (kind == "gradient_sums") return conv.stride == 1;
  if (kind == "statistics") return type == "fp16" && conv.in % 8 == 0;
  return determinism == "any" || conv.in % 8 == 0;
}

/// Gradients of texts: only Hopper has those of more than 128 channels, and only GPUs of data centres have equal bits.
/// texts_attention.cpp asks on 9.x and 10.x alone: elsewhere the frontend ignores the number of rows.
bool is_known_gradient_of_texts(const std::string& architecture, const std::string& determinism, int channels) {
  const bool is_of_data_centre = architecture == "sm_90" || architecture == "sm_100";
  return (channels <= 128 || architecture == "sm_90") && (determinism == "any" || is_of_data_centre);
}

}  // namespace

std::string AskedGraph::arguments() const {
  std::string text = architecture + " " + type + " " + kind + " " + determinism;
  for (const int64_t number : numbers) text += " " + std::to_string(number);
  return text;
}

std::vector<AskedGraph> for_each_type(const std::string& architecture, const std::string& kind,
                                      const std::vector<Conv>& convs, const std::string& determinism) {
  std::vector<AskedGraph> all;
  for (const char* type : {"bf16", "fp16"}) {
    for (const Conv& c : convs) {
      all.push_back({architecture,
                     type,
                     kind,
                     determinism,
                     {c.images, c.in, c.size, c.out, c.kernel, c.stride},
                     is_known_to_be_there(kind, type, determinism, c)});
    }
  }
  return all;
}

std::vector<AskedGraph> for_each_type(const std::string& architecture, const HeadsToAttend& heads,
                                      const std::string& determinism) {
  std::vector<AskedGraph> all;
  for (const char* type : {"bf16", "fp16"}) {
    for (const char* kind : {"attention", "attention_gradient"}) {
      const auto& h = heads;
      all.push_back({architecture,
                     type,
                     kind,
                     determinism,
                     {h.batch, h.time, h.heads, h.key_heads, h.channels, h.causal ? 1 : 0}});
    }
  }
  return all;
}

std::vector<AskedGraph> for_each_type(const std::string& architecture, const TextsToAttend& texts,
                                      const std::string& determinism) {
  std::vector<AskedGraph> all;
  const auto& t = texts;
  for (const char* type : {"bf16", "fp16"}) {
    for (const bool is_forward : {true, false}) {
      all.push_back({architecture,
                     type,
                     is_forward ? "texts" : "texts_gradient",
                     determinism,
                     {t.texts, t.longest, t.rows, t.heads, t.key_heads, t.channels, t.causal ? 1 : 0, t.window},
                     is_forward || is_known_gradient_of_texts(architecture, determinism, t.channels)});
    }
  }
  return all;
}

std::vector<AskedGraph> for_each_type(const std::string& architecture, int rows, int in, int out) {
  std::vector<AskedGraph> all;
  for (const char* type : {"bf16", "fp16"}) {
    for (const char* kind : {"gelu", "gelu_gradient", "gelu_sums"}) {
      for (const int transposed : {0, 1}) {
        for (const int by_tanh : {0, 1})
          all.push_back({architecture, type, kind, "any", {rows, in, out, transposed, by_tanh, 0}});
      }
    }
  }
  return all;
}

// Two processes at a time, because each compiles for a second or two.
void expect_as_known(const std::vector<AskedGraph>& all) {
  for (const char* needed : {GPUTRAIN_GRAPH_CHECK, GPUTRAIN_DRIVER_STUB "/libcuda.so.1"}) {
    if (!std::filesystem::exists(needed)) GTEST_SKIP() << needed << " is not there";
  }
  for (size_t i = 0; i < all.size(); i += 2) {
    std::vector<std::future<std::string>> answers;
    for (size_t k = i; k < std::min(i + 2, all.size()); ++k) {
      answers.push_back(std::async(std::launch::async, answer_to, all[k]));
    }
    for (size_t k = 0; k < answers.size(); ++k) {
      const AskedGraph& asked = all[i + k];
      const std::string said = answers[k].get(), expected = asked.is_supported ? "built" : "refused";
      EXPECT_EQ(said.substr(0, expected.size()), expected) << asked.arguments() << ": " << said;
    }
  }
}

}  // namespace gputrain::testing_support
