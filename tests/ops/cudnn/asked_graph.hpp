// Which of our graphs cuDNN supports, on GPUs that need not be there: each is built, in a process of its own, as cuDNN
// crashes on some. That cuDNN says to support a graph does not mean that it can build one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace gputrain::testing_support {

struct AskedGraph {
  std::string architecture, type, kind, determinism;  // as graph_check.cpp takes them
  std::vector<int64_t> numbers;
  bool is_supported = true;  // as cuDNN 9.19 has it

  std::string arguments() const;
};

struct Conv {
  int in, size, out, kernel, stride;  // of images in and their height and width
  int images = 256;
};

/// For bf16 and fp16.
std::vector<AskedGraph> for_each_type(const std::string& architecture, const std::string& kind,
                                      const std::vector<Conv>& convs, const std::string& determinism = "any");

struct HeadsToAttend {
  int batch, time, heads, key_heads, channels;
  bool causal;
};

/// Forward and gradient for bf16 and fp16.
std::vector<AskedGraph> for_each_type(const std::string& architecture, const HeadsToAttend& heads,
                                      const std::string& determinism = "any");

/// Fails where what is supported is not what is known: a new cuDNN may have changed it.
void expect_as_known(const std::vector<AskedGraph>& all);

}  // namespace gputrain::testing_support
