// Start from published weights: reads a Hugging Face config.json and copies tensors into a model.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "gputrain/config/load.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/models/published.hpp"
#include "gputrain/nn/packing.hpp"

namespace gputrain::models {

/// Returns `--set` lines for the options that the job does not set itself; load the job again with them. `key` is the
/// model's key in the job: "model". Throws SpecError that lists each option that the job sets to another value.
std::vector<std::string> settings_of(const PublishedModel& published, const config::Loaded& job,
                                     const std::string& key);

/// Tensors by name, from any source.
struct TensorSource {
  std::string where;  // path, for messages
  std::vector<std::string> names;
  std::function<at::Tensor(const std::string& name)> tensor;
  std::function<std::string(const std::string& name)> file_of = {};  // path of the file with a tensor; null: `where`
  std::shared_ptr<const PublishedFamily> family = {};  // family whose names they are; null: that of the model
  std::string sizes_hint = {};                         // hint if sizes differ
  std::vector<int64_t> class_rows = {};                // row of their last layer by our class; empty: the same
  std::optional<ImageSize> images = {};                // size of the images they were trained on; empty: unknown
  /// Matrices that are packed in the source, by the names of their codes; with_packed() finds them.
  std::map<std::string, nn::FoundPacked> packed = {};
};

/// Returns the source with its packed matrices. Their tensors beside the codes are no longer among the names.
TensorSource with_packed(TensorSource source);

/// Treatment of a last layer whose number of classes in the file is not the model's. With left_out the file is taken
/// for one of another model: it may also lack the parameters of branches and of Model::head_parts(), and may be of RGB
/// images where the model reads grey ones: the first layer then gets the sum over the colours, as in timm.
enum class OtherClasses { refused, left_out };
/// Parts of another model's weights that were left out, missing or changed.
struct NotLoaded {
  int64_t classes_left_out = 0;                 // classes in the file, of a last layer that was left out
  std::vector<std::string> missing_parts = {};  // names of Model::head_parts() that the file lacks
  bool sums_colours = false;                    // the first layer has the sum over the colours, for grey images
};

/// Copies the source's tensors into the model's buffers and those parameters that have memory, mapped by the family's
/// `parameter_of` and cast to their types. A prefix that all names in the file have and the model's do not, such as
/// Lightning's `model.`, is removed. Throws Error(data) that lists all missing, unknown and differently shaped tensors
/// before it writes anything, and while it writes, for the first tensor with values that are not finite.
NotLoaded load_weights(Model& model, const TensorSource& source, OtherClasses other_classes = OtherClasses::refused);

/// Copies tensors by their names in the source, in the same way.
void load_tensors(const std::map<std::string, at::Tensor>& targets, const TensorSource& source);

}  // namespace gputrain::models
