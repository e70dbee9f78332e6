// A trained encoder that is ready to read texts: of a run, or of a published model's folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "gputrain/core/batch.hpp"
#include "gputrain/data/options.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"

namespace gputrain::app {

struct TextEncoderRequest {
  std::filesystem::path folder;          // a run folder, or config.json with weights and a tokenizer
  std::vector<std::string> set;          // --set of the run's job, or of one that gives the model its place
  std::filesystem::path tokenizer = {};  // a published one, instead of the folder's own; empty: its own
  bool gives_vectors = false;            // a published model's head is left out for that of vectors
  bool needs_tokenizer = true;           // false: tokens need not be spelled
};

struct TextEncoder {
  RankContext context;
  JobDatasets datasets;  // without samples, unless they are what the tokenizer is made from
  BuiltModel built;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;
  std::string tokenizer_kind = "published";  // as data.text.tokenizer names it
  std::filesystem::path tokenizer_folder;    // of a published one; else empty
  TextUse use = TextUse::label;              // what it was trained for
  std::vector<std::string> class_names;      // in order of their numbers; numbered ones if they have no names
  int64_t vocabulary = 0;
  int64_t longest_text = 0;   // tokens that a text may have
  data::ColumnNames columns;  // of the run's data
};

/// Opens what is needed and loads the weights: a run's model.safetensors or, before there is one, its newest
/// checkpoint. Data is opened only where the tokenizer is made from it, and as signature_of_run() does. Throws
/// Error(usage) for a folder that is neither; Error(data) for weights that cannot be read or lack the head.
std::unique_ptr<TextEncoder> open_text_encoder(const TextEncoderRequest& request);

}  // namespace gputrain::app
