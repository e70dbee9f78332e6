// A trained model that is ready to compute: of a run, one of its checkpoints, an adapter, or a published folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/grad_mode.h>

#include "gputrain/data/options.hpp"
#include "gputrain/data/signature.hpp"
#include "gputrain/device/working_copy.hpp"
#include "gputrain/generation/generate.hpp"
#include "gputrain/models/mirrored.hpp"
#include "gputrain/setup/text_files.hpp"
#include "gputrain/setup/training_setup.hpp"
#include "gputrain/tokenizers/published.hpp"

namespace gputrain::trained {

struct Request {
  std::filesystem::path folder;
  std::vector<std::string> set = {};     // --set of the run's job, or of one that gives a published model its place
  std::filesystem::path tokenizer = {};  // a published one, instead of the folder's own; empty: its own
  bool gives_vectors = false;            // a published encoder's head is left out for that of vectors
};

/// A trained model that is not open: what it reads and gives, and where its parts lie.
struct Source {
  std::filesystem::path folder;  // that was asked for
  app::Job job;                  // of the run, or one that only says which published model it is
  bool shares_model = false;     // --set says how ranks share the model: else each has all of it
  data::Signature signature;
  std::filesystem::path weights;    // of a run; empty: the job names all weights
  std::filesystem::path tokenizer;  // a published one; empty: it is made from the training data, or no text is read
  std::optional<std::string> chat_template = {};       // a file or a name; none: that of the tokenizer
  bool adds_special_tokens = false;                    // to a prompt, as the tokenizer's file says
  std::optional<int64_t> longest = {};                 // tokens of a text, where fewer are wanted than the model reads
  std::optional<app::JobDatasets> training_data = {};  // open, where nothing else says what the run's model is

  bool reads_texts() const noexcept { return signature.reads_texts(); }
  bool continues_texts() const noexcept { return signature.gives == Target::next_token; }
};

/// Finds what a folder holds. Opens training data only for a run without model.json, of a version that wrote none,
/// where config.json, tokenizer and weights do not say the same. Throws Error(usage) for a folder that holds no model,
/// Error(data) for files that cannot be read. Every rank must call.
Source find(const Request& request);

/// Throws Error(usage) unless the model continues texts: the error says what it gives instead, and which verb is for
/// that. `user`: who needs it, such as "generate".
void check_continues_texts(const Source& source, const std::string& user);
/// Returns what the model gives, to go on after "the model": "gives a class".
std::string what_it_gives(const data::Signature& signature);
/// Returns the verb that uses such a model: "gputrain predict".
std::string verb_for(const data::Signature& signature);

struct Model {
  app::Job job;
  data::Signature signature;
  std::vector<std::string> class_names;  // in order of their numbers; numbered ones if they have no names
  app::RankContext context;
  app::JobDatasets datasets;  // without samples, unless they are what the tokenizer is made from
  app::BuiltModel built;

  // Of a model that reads texts:
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;  // null: tokens are not spelled
  std::string tokenizer_kind = "published";                // as data.text.tokenizer names it
  /// The same where it is a published one, and the folder that its files are in; otherwise null.
  std::shared_ptr<const tokenizers::PublishedTokenizer> published;
  std::filesystem::path tokenizer_folder;
  std::optional<std::string> chat_template;  // a file or a name; `files` has the template itself, if it is good
  app::TextFiles files;
  bool adds_special_tokens = false;
  int64_t vocabulary = 0;                      // tokens that the model knows
  int64_t longest_text = 0;                    // tokens that it reads at once
  data::ColumnNames columns;                   // of the run's data
  generation::MakeCapturedGraphs make_graphs;  // null: train.cuda_graphs is off
};

/// Whether tokens must be spelled: whoever reads or writes texts needs a tokenizer.
enum class Spelling { needed, not_needed };

/// Builds the model, loads its weights and its tokenizer; it is in evaluation mode. Opens training data only where the
/// tokenizer is made from it. Every rank must call. Throws Error(usage) where a tokenizer is needed and there is none;
/// Error(data) for weights that cannot be read, that lack the head of the model, or that were trained on other data.
std::unique_ptr<Model> open(Source source, Spelling spelling = Spelling::needed);

/// Runs batches through a trained model, without autograd. With eval.hflip, images are seen from both sides.
class Forward {
 public:
  explicit Forward(Model& model);
  /// Logits [batch, ..., classes], or vectors [batch, channels], without the outputs that only pad the last layer.
  at::Tensor operator()(const Batch& batch);

 private:
  Model& model_;
  at::NoGradGuard no_grad_;
  device::Reading weights_;
  std::optional<models::Mirrored> mirrored_;
};

/// Does the same with any model, in the mode that it is in.
at::Tensor outputs_of(models::Model& model, const Batch& batch);

}  // namespace gputrain::trained
