// Reading and writing of weights on disk, with the names that other frameworks use.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/checkpoint/safetensors.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/job/run_folder.hpp"
#include "gputrain/models/adapter.hpp"
#include "gputrain/models/model.hpp"
#include "gputrain/models/pretrained.hpp"

namespace gputrain::app {

struct BuiltModel;

/// Returns the live parameters and buffers, detached.
checkpoint::NamedTensors named_weights(models::Model& model);
/// Returns those that training changes: trainable parameters and buffers.
checkpoint::NamedTensors trained_weights(models::Model& model);
/// Returns the frozen parameters.
checkpoint::NamedTensors frozen_weights(models::Model& model);

/// Throws Error(data) if load_weights() would find no weights, or files that are none. Call it first: later errors
/// about a missing config.json are less clear.
void check_weights(const std::filesystem::path& path);
/// Returns whether it would not throw.
bool has_weights(const std::filesystem::path& path);
/// Returns whether this is a folder with a model's config.json and no weights in any format: they may come later.
bool awaits_weights(const std::filesystem::path& path);

/// Returns the tensors of checkpoint::WeightFiles, with the names of the family that stands in a config.json beside.
models::TensorSource weight_source(const std::filesystem::path& path, const models::Model& model);

/// Loads the model from checkpoint::WeightFiles. Throws Error(data) that lists all tensors that are missing, unexpected
/// or of another shape. The rows of the last layer follow the names of the classes, if the weights have the same names.
/// Returns the parts of the model that were not loaded.
models::NotLoaded load_weights(BuiltModel& built, const std::filesystem::path& path,
                               models::OtherClasses other_classes = models::OtherClasses::refused);

/// Returns the images that the weights were trained on, as targets_of() finds it; empty: not known.
std::optional<models::ImageSize> images_of(const std::filesystem::path& path);

/// Meaning of the numbers of classes or characters.
struct Targets {
  std::vector<std::string> names;  // names in order of the numbers; empty: not known
  bool are_published = false;      // true: named by a published config.json
};
/// Reads names from the metadata of weights or, for a checkpoint, of the weights that its run has written; else from a
/// config.json beside.
Targets targets_of(const std::filesystem::path& path);

/// Returns the first difference, if the weights name other classes or characters than the dataset, though equally many:
/// `3 is "cat" to these weights and "dog" in this data`. Empty if load_weights() brings them into the order of the
/// data, if the data numbers its classes from 0 on and the names are published, or if the weights name none.
std::string other_targets(const Targets& theirs, const data::Dataset& dataset);

/// Copies the files with a published model's tokens and its way of writing. `source` is the file that counts if its
/// tokenizer has several forms; empty: all.
void copy_tokenizer_files(const std::filesystem::path& from, const std::filesystem::path& to,
                          const std::filesystem::path& source = {});

/// Returns named_weights() under the names of the model's published family, without what an adapter adds and without
/// packed weights.
checkpoint::NamedTensors published_weights(models::Model& model);

/// Writes published_weights() on rank 0 as model.safetensors, with the names of the learned classes or characters in
/// its metadata, and a Hugging Face config.json if the architecture has one. If no rank has all weights, every rank
/// must call: they are gathered in turn, and rank 0 has no more than one unit of them in memory. Throws
/// Error(checkpoint) on rank 0 if its disk fails.
void write_weights(BuiltModel& built, int rank, const data::Dataset& learned, const RunFolder& folder);
/// Writes these weights in the same way, named as the model's.
void write_weights(models::Model& model, const checkpoint::NamedTensors& weights, const data::Dataset& learned,
                   const RunFolder& folder);

/// Returns the folder of an adapter: the path itself, a run's `adapter` in it, or that of a file; empty: there is none.
std::filesystem::path adapter_folder_at(const std::filesystem::path& path);

/// Loads an adapter's folder, PEFT's or ours, into the trained parameters of an adapted model. Rows of the last layer
/// follow the names of the classes; if the folder has none, they are those of the pretrained weights. Throws
/// Error(data) for another adapter.
void load_adapter(BuiltModel& built, const std::filesystem::path& folder);

struct TrainedAdapter {
  const models::Adapter& adapter;
  const checkpoint::NamedTensors& weights;  // named as the model's; those of the adapter are among them
  const std::string& base;                  // path of the weights that the model began with
  const data::Dataset& learned;
};

/// Writes an adapter's folder like PEFT.
void write_adapter(models::Model& model, const TrainedAdapter& trained, const std::filesystem::path& folder);

}  // namespace gputrain::app
