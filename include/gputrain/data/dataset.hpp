// A dataset: numbered samples, read in any order from many threads. One format per file in src/datasets and
// src/records.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gputrain/config/catalog.hpp"
#include "gputrain/data/fields.hpp"
#include "gputrain/tokenizers/tokenizer.hpp"

namespace gputrain::data {

struct ImageOptions;  // options.hpp
struct TextOptions;
struct Signature;  // signature.hpp

enum class Split { train, val, test };

/// Per-channel statistics of images. Preprocess computes (value / 255 - mean) / std.
struct Normalization {
  std::vector<double> mean, std;
};

/// Everything that a read may depend on. Augmentation draws only from (seed, epoch, sample index), so every worker,
/// rank and attempt reads the same sample.
struct ReadContext {
  uint64_t seed = 0;
  int64_t epoch = 0;
  bool augment = false;
};

class Dataset {
 public:
  virtual ~Dataset();

  virtual int64_t size() const = 0;  // counts the samples of an epoch
  virtual const SampleLayout& layout() const = 0;

  /// Writes every field of sample `index` into `row`. For a ragged field, writes its entries and sets their count.
  /// Thread-safe. Throws Error(data) if the sample cannot be read.
  virtual void read(int64_t index, const ReadContext& context, const SampleRow& row) const = 0;

  /// Returns the entries of the ragged fields of a sample, at least 1, without reading it, if samples differ in length;
  /// else 0.
  virtual int64_t length(int64_t /*index*/) const { return 0; }
  /// Returns the same for the fields that one pass reads; see Field::pass.
  virtual int64_t length_of_pass(int64_t index, int /*pass*/) const { return length(index); }

  /// Returns whether a read costs little more than a copy, so that worker threads would only add overhead.
  virtual bool is_cheap_to_read() const { return false; }

  /// Returns the part [begin, end) of the data, as fractions, for `role`. Null: the caller picks the samples with a
  /// fixed shuffle. Override it if order matters (text) or if roles are read differently (images).
  virtual std::shared_ptr<const Dataset> part(double begin, double end, Split role) const;

  virtual std::optional<Normalization> normalization() const { return std::nullopt; }
  virtual std::vector<std::string> class_names() const { return {}; }
  /// Returns the number of a sample's class without reading the sample; empty: not known, or it has none.
  virtual std::optional<int64_t> class_of(int64_t /*index*/) const { return std::nullopt; }
  /// Returns a name for people, such as the sample's file; empty: its number.
  virtual std::string sample_name(int64_t /*index*/) const { return {}; }

  /// Returns the tokenizer that made the samples; null if the samples are not text, or were tokens already.
  virtual std::shared_ptr<const tokenizers::Tokenizer> tokenizer() const { return nullptr; }

  /// Returns a hash of sizes and pieces of the content, which tells it from other content with as many samples; 0: not
  /// known. Reads a megabyte at most. Throws Error(data).
  virtual uint64_t content_hash() const { return 0; }

  /// Returns the line that a run prints at its start: "60,000 images 28x28x1, 10 classes".
  virtual std::string describe() const = 0;
};

/// Returns the names of target numbers: classes or characters; empty if unknown.
std::vector<std::string> target_names(const Dataset& dataset);

/// Counts the samples of each of the layout's classes. Throws Error(usage) if that needs the samples to be read.
std::vector<int64_t> class_counts(const Dataset& dataset);

/// Returns the dataset's content_hash() as digits; empty: there is none, or the data cannot be read, which its reader
/// will report.
std::string content_digits(const Dataset& dataset);

/// Request that every format gets, besides its own options.
struct DatasetRequest {
  std::string path;  // after interpolation; may be empty if the format needs none
  Split role = Split::train;
  InputSpec model = {};                 // model input
  std::string pretrained = {};          // the job's model.pretrained: a folder or a file; empty: none
  int64_t sequence_length = 0;          // tokens per sample, for text formats; 0: neither model nor job sets it
  const ImageOptions* image = nullptr;  // `data.image`; null: defaults
  const TextOptions* text = nullptr;    // `data.text`; null: defaults
  double max_bad_fraction = 0;          // fraction of the samples that may be unreadable
  /// Signature of the training data, for val and test: its classes, tokenizer and statistics apply.
  const Signature* train = nullptr;
  std::vector<std::string>* files = nullptr;  // list that tell_files() fills; null: nobody asks
  std::vector<std::string> own_folders = {};  // run folder and mirror of the job; their files are not data
  /// Reports the files that a format reads: a warning is logged if evaluation reads the training files.
  void tell_files(std::vector<std::string> read) const {
    if (files != nullptr) *files = std::move(read);
  }
};

using DatasetCatalog = config::Catalog<Dataset, const DatasetRequest&>;
DatasetCatalog& catalog();

}  // namespace gputrain::data
