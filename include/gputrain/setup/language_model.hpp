// A language model that is ready to write: of a run, or of a published model's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/generation/generate.hpp"
#include "gputrain/setup/text_files.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/tokenizers/published.hpp"

namespace gputrain::app {

struct LanguageModelRequest {
  std::filesystem::path folder;          // a run folder, or config.json with weights and a tokenizer
  std::vector<std::string> set;          // --set of the run's job, or of one that gives the model its place
  std::filesystem::path tokenizer = {};  // a published one, instead of the folder's own; empty: its own
  bool needs_tokenizer = true;           // false: tokens need not be spelled
};

struct LanguageModel {
  RankContext context;
  JobDatasets datasets;
  BuiltModel built;
  models::Model::TextLimits limits;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  /// The same where it is a published one, and the folder that its files are in; otherwise null.
  std::shared_ptr<const tokenizers::PublishedTokenizer> published;
  std::filesystem::path tokenizer_folder;
  /// A file or a name; none: the tokenizer folder's own. `files` has the template itself, if it is good.
  std::optional<std::string> chat_template;
  TextFiles files;
  bool adds_special_tokens = false;  // to a prompt, as the tokenizer's file says: a published model expects them
  generation::MakeCapturedGraphs make_graphs;  // null: train.cuda_graphs is off
};

/// Opens what is needed and loads the weights: a run's model.safetensors or, before there is one, its newest
/// checkpoint. Data is opened only where the tokenizer is made from it. Throws Error(usage) for a folder that is
/// neither, for a model that does not continue texts, and where there is no tokenizer but one is needed; Error(data)
/// for weights that cannot be read.
std::unique_ptr<LanguageModel> open_language_model(const LanguageModelRequest& request);

}  // namespace gputrain::app
