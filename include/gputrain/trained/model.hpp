// Trained model that is ready to compute: that of a run, one of its checkpoints, an adapter, or a published folder.
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
  std::vector<std::string> set = {};     // --set of the run's job, or of the job made for a published model
  std::filesystem::path tokenizer = {};  // a published one, instead of the folder's own; empty: its own
  bool gives_vectors = false;            // true: a published encoder's head is replaced by that of vectors
};

/// Trained model that is not open: its input and output, and where its parts lie.
struct Source {
  std::filesystem::path folder;  // folder of the request
  app::Job job;                  // job of the run, or one that only says which published model it is
  bool shares_model = false;     // true: --set says how ranks share the model; false: each has all of it
  data::Signature signature;
  std::filesystem::path weights;    // weights of a run; empty: the job names all weights
  std::filesystem::path tokenizer;  // a published one; empty: it is made from the training data, or no text is read
  std::optional<std::string> chat_template = {};       // file or name; none: that of the tokenizer
  bool adds_special_tokens = false;                    // true: a prompt gets those of the tokenizer's file
  std::optional<int64_t> longest = {};                 // tokens of a text, if fewer are wanted than the model reads
  std::optional<app::JobDatasets> training_data = {};  // open data, if nothing else describes the run's model

  bool reads_texts() const noexcept { return signature.reads_texts(); }
  bool continues_texts() const noexcept { return signature.gives == Target::next_token; }
};

/// Finds the model in a folder. Opens training data only for a run without model.json, of a version that wrote none,
/// whose config.json, tokenizer and weights do not say the same. Throws Error(usage) for a folder without a model,
/// Error(data) for files that cannot be read. Every rank must call.
Source find(const Request& request);

/// Throws Error(usage) unless the model continues texts: the error names what it gives instead, and the verb for that.
/// `user` is who needs it, such as "generate".
void check_continues_texts(const Source& source, const std::string& user);
/// Returns the model's output, to follow "the model": "gives a class".
std::string what_it_gives(const data::Signature& signature);
/// Returns the verb that uses such a model: "gputrain predict".
std::string verb_for(const data::Signature& signature);

struct Model {
  app::Job job;
  data::Signature signature;
  std::vector<std::string> class_names;  // names in order of the classes' numbers, or numbered ones
  app::RankContext context;
  app::JobDatasets datasets;  // datasets without samples, unless the tokenizer is made from them
  app::BuiltModel built;

  // Parts for texts, if the model reads them:
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer;  // null: tokens are not spelled
  std::string tokenizer_kind = "published";                // name in data.text.tokenizer
  /// The tokenizer, if it is a published one, and the folder of its files; otherwise null.
  std::shared_ptr<const tokenizers::PublishedTokenizer> published;
  std::filesystem::path tokenizer_folder;
  std::optional<std::string> chat_template;  // file or name; `files` has the template itself, if it is good
  app::TextFiles files;
  bool adds_special_tokens = false;
  int64_t vocabulary = 0;                      // tokens that the model knows
  int64_t longest_text = 0;                    // tokens that it reads at once
  data::ColumnNames columns;                   // columns of the run's data
  generation::MakeCapturedGraphs make_graphs;  // null: train.cuda_graphs is off
};

/// Need of a tokenizer: to read or write texts, tokens must be spelled.
enum class Spelling { needed, not_needed };

/// Builds the model, loads its weights and its tokenizer; it is in evaluation mode. Opens training data only if the
/// tokenizer is made from it. Every rank must call. Throws Error(usage) if a tokenizer is needed and there is none;
/// Error(data) for weights that cannot be read, that lack the head of the model, or that were trained on other data.
std::unique_ptr<Model> open(Source source, Spelling spelling = Spelling::needed);

/// Forward passes of a trained model, without autograd. With eval.hflip, images are seen from both sides.
class Forward {
 public:
  explicit Forward(Model& model);
  /// Returns logits [batch, ..., classes], or vectors [batch, channels], without outputs that only pad the last layer.
  at::Tensor operator()(const Batch& batch);

 private:
  Model& model_;
  at::NoGradGuard no_grad_;
  device::Reading weights_;
  std::optional<models::Mirrored> mirrored_;
};

/// Does the same with any model, in the mode that it is in.
at::Tensor outputs_of(models::Model& model, const Batch& batch);

/// Returns the outputs [..., classes] that have a name: a model may have more classes than its data. For probabilities,
/// which count all classes.
at::Tensor with_names(const at::Tensor& outputs, const std::vector<std::string>& names);

}  // namespace gputrain::trained
