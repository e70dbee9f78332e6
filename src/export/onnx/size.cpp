#include "size.hpp"

#include <algorithm>
#include <string>

#include "gputrain/core/error.hpp"

namespace gputrain::app::onnx {
namespace {

constexpr int64_t kSamples = 2, kMoreSamples = 5, kLength = 9;

}  // namespace

std::vector<Extent> extents_to_record(int64_t longest) {
  if (longest == 0) return {{kSamples, 0}, {kSamples + 1, 0}, {kMoreSamples, 0}};
  const int64_t most = std::min(longest, kLength), length = std::max<int64_t>(2, most - 4);
  if (length + 1 >= most)
    throw Error(ExitCode::usage, {.what = "the model reads at most " + std::to_string(longest) +
                                          " tokens, too few to tell how its sizes grow with them",
                                  .where = "--format onnx"});
  return {{kSamples, length},
          {kSamples + 1, length},
          {kMoreSamples, most},
          {kSamples, length + 1},
          {kSamples + 1, length + 1}};
}

std::optional<Size> size_of(const std::vector<int64_t>& values, const std::vector<Extent>& extents) {
  const auto [samples, tokens] = extents[0];
  const bool has_lengths = extents.size() > 3;
  Size size;
  if (has_lengths) size.both = (values[4] - values[3]) - (values[1] - values[0]);
  size.batch = values[1] - values[0] - size.both * tokens;
  if (has_lengths) size.length = values[3] - values[0] - size.both * samples;
  size.constant = values[0] - size.batch * samples - size.length * tokens - size.both * samples * tokens;
  for (size_t i = 0; i < values.size(); ++i)
    if (size.at(extents[i]) != values[i]) return std::nullopt;
  return size;
}

}  // namespace gputrain::app::onnx
