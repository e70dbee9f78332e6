// Checks which of our graphs cuDNN supports, without needing the GPU. Each graph is built in a separate process,
// because cuDNN crashes on some. cuDNN's claim to support a graph does not mean that it can build one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gputrain::testing_support {

struct AskedGraph {
  std::string architecture, type, kind, determinism;  // arguments of graph_check.cpp
  std::vector<int64_t> numbers;
  bool is_supported = true;  // in cuDNN 9.19

  std::string arguments() const;
};

struct Conv {
  int in, size, out, kernel, stride;  // size: height and width of the input
  int images = 256;
};

/// Graphs for bf16 and fp16.
std::vector<AskedGraph> for_each_type(const std::string& architecture, const std::string& kind,
                                      const std::vector<Conv>& convs, const std::string& determinism = "any");

struct HeadsToAttend {
  int batch, time, heads, key_heads, channels;
  bool causal;
};

/// Forward and gradient graphs for bf16 and fp16.
std::vector<AskedGraph> for_each_type(const std::string& architecture, const HeadsToAttend& heads,
                                      const std::string& determinism = "any");

struct TextsToAttend {
  int texts, longest, rows, heads, key_heads, channels;
  bool causal;
  int window;  // 0: none
};

/// The same for texts that lie one after the other.
std::vector<AskedGraph> for_each_type(const std::string& architecture, const TextsToAttend& texts,
                                      const std::string& determinism = "any");

/// A product with GELU, its gradient, and the latter with sums.
std::vector<AskedGraph> for_each_type(const std::string& architecture, int rows, int in, int out);

/// Fails if the supported graphs differ from the expected ones: a new cuDNN may have changed them.
void expect_as_known(const std::vector<AskedGraph>& all);

}  // namespace gputrain::testing_support
