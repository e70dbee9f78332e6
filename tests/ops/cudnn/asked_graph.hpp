// Which of our graphs cuDNN supports, on GPUs that need not be there: each is built, in a process of its own, as cuDNN
// crashes on some. That cuDNN says to support a graph does not mean that it can build one.
#pragma once

#include <string>
#include <vector>

namespace gputrain::testing_support {

struct Conv {
  int in, size, out, kernel, stride;  // of images in and their height and width
};

struct AskedGraph {
  std::string architecture, type, kind, determinism;  // as graph_check.cpp takes them
  Conv conv;
  int images = 256;

  std::string arguments() const;
  /// As cuDNN 9.19 has it.
  bool is_supported() const { return kind == "sums" ? determinism == "any" || conv.in % 8 == 0 : conv.stride == 1; }
};

std::vector<AskedGraph> for_each_type(const std::string& architecture, const std::string& kind,
                                      const std::vector<Conv>& convs, const std::string& determinism = "any");

/// Fails where what is supported is not what is known: a new cuDNN may have changed it.
void expect_as_known(const std::vector<AskedGraph>& all);

}  // namespace gputrain::testing_support
