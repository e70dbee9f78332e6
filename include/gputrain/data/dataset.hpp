// A dataset: a numbered set of samples that can be read in any order from many threads. One format per file in
// src/datasets.
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

enum class Role { train, val, test };

/// Per-channel statistics for images; inputs become (value / 255 - mean) / std in the loader's last stage.
struct Normalization {
  std::vector<double> mean, std;
};

/// What a read may depend on. Augmentation draws from (seed, epoch, sample index) only, so that any worker, rank or
/// attempt reads the same sample.
struct ReadContext {
  uint64_t seed = 0;
  int64_t epoch = 0;
  bool augment = false;
};

class Dataset {
 public:
  virtual ~Dataset();

  virtual int64_t size() const = 0;  // samples in an epoch
  virtual const SampleLayout& layout() const = 0;

  /// Writes every field of sample `index` into `row`; of a ragged field its first entries, and their count. Called from
  /// several threads at once. Throws Error(data) for a sample that cannot be read.
  virtual void read(int64_t index, const ReadContext& context, const SampleRow& row) const = 0;

  /// A read costs little more than copying the sample: threads would only add overhead.
  virtual bool is_cheap_to_read() const { return false; }

  /// The part [begin, end) of the data, as fractions, for `role`; null: any samples may be taken, which is done by a
  /// fixed shuffle. Overridden where order means something (text) or where roles are read differently (images).
  virtual std::shared_ptr<const Dataset> part(double begin, double end, Role role) const;

  virtual std::optional<Normalization> normalization() const { return std::nullopt; }
  virtual std::vector<std::string> class_names() const { return {}; }

  /// What turned text into the tokens of the samples; null: the samples are no text, or came as tokens.
  virtual std::shared_ptr<const tokenizers::Tokenizer> tokenizer() const { return nullptr; }

  /// One line for the start of a run: "60,000 images 28x28x1, 10 classes".
  virtual std::string describe() const = 0;
};

/// What the numbers of targets stand for: classes, or characters; empty where they stand for nothing that is known.
std::vector<std::string> target_names(const Dataset& dataset);

/// What every format is told besides its own options.
struct DatasetRequest {
  std::string path;  // after interpolation; may be empty for formats that need none
  Role role = Role::train;
  InputSpec model = {};                 // what the model reads
  int64_t sequence_length = 0;          // tokens per sample, for text formats; 0: neither model nor job say
  const ImageOptions* image = nullptr;  // `data.image`; null: defaults
  const TextOptions* text = nullptr;    // `data.text`; null: defaults
  const Dataset* train = nullptr;       // when opening val or test: its vocabulary, class names and statistics hold
  std::vector<std::string>* files = nullptr;  // null: nobody asks
  /// To be told by formats that read files: evaluation on the very files of training is worth a warning.
  void tell_files(std::vector<std::string> read) const {
    if (files != nullptr) *files = std::move(read);
  }
};

using DatasetCatalog = config::Catalog<Dataset, const DatasetRequest&>;
DatasetCatalog& catalog();

}  // namespace gputrain::data
