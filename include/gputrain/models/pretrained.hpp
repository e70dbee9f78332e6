// Starting from published weights: reads a Hugging Face config.json and copies tensors into a model.
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
  std::shared_ptr<const PublishedFamily> family = {};  // whose names they are; null: those of the model's family
  std::string sizes_hint = {};                         // what to try where sizes differ
  std::vector<int64_t> class_rows = {};                // by our class the row of a last layer; empty: the same
  std::optional<ImageSize> images = {};                // empty: unknown
};

/// What to do with a last layer that has another number of classes in the file than in the model. Where it is left out,
/// the file may lack the parameters of branches and of Model::head_parts() as well: it is of another model. It may then
/// also be of RGB images where the model reads grey ones: the first layer gets the sum over the colours, as in timm.
enum class OtherClasses { refused, left_out };
/// What the model did not get as it is from weights that are of another model.
struct NotLoaded {
  int64_t classes_left_out = 0;                 // in the file, of a last layer that was left out
  std::vector<std::string> missing_parts = {};  // names of Model::head_parts() that the file lacks
  bool sums_colours = false;                    // the first layer's, for grey images
};

/// Copies the source's tensors into the model's parameters that have memory and its buffers, mapped by the family's
/// `parameter_of` and cast to their types. A prefix that all names have and the model's do not, such as Lightning's
/// `model.`, is taken off. Before it writes anything, it throws Error(data) that lists all missing, unknown and
/// differently shaped tensors; while it writes, for the first tensor with values that are not finite. Returns what
/// keeps the model's values.
NotLoaded load_weights(Model& model, const TensorSource& source, OtherClasses other_classes = OtherClasses::refused);

/// The same for tensors by their names in the source.
void load_tensors(const std::map<std::string, at::Tensor>& targets, const TensorSource& source);

}  // namespace gputrain::models
