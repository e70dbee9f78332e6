// Samples of texts: one store and one way from records to fields, with a builder for each kind of samples.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../read_all.hpp"
#include "../tokens/learned_text.hpp"
#include "flat.hpp"
#include "gputrain/data/dataset.hpp"
#include "gputrain/data/options.hpp"
#include "packing.hpp"

namespace gputrain::records {

/// Sample in the making: the content of its record, and the reason if it is bad.
struct Draft {
  std::vector<LearnedText> texts = {};    // texts to be encoded
  std::vector<std::string> names = {};    // names of classes, or of tags
  std::vector<float> numbers = {};        // numbers of its target
  std::vector<Dialogue> dialogues = {};   // dialogues that become texts
  nlohmann::ordered_json variables = {};  // variables of the chat template
  std::string place = {}, problem = {};
};

/// Stored form of a sample. A stream has four bytes for each token, whose highest bit may say that it is learned.
struct EncodedSample {
  std::vector<std::vector<uint32_t>> streams;
  int64_t second = 0;     // begin of the tokens of the second type in the first stream
  int64_t full_size = 0;  // number of tokens of its longest text before the cut
  bool is_cut = false;
};

struct FramedTexts;
EncodedSample encoded_sample(FramedTexts texts);

/// All samples, and the facts that messages report.
struct MadeSamples {
  struct Stream {
    Flat<uint32_t> values;
    Flat<int64_t> ends;  // end of each sample

    std::span<const uint32_t> of(int64_t index) const noexcept;
    int64_t length(int64_t index) const noexcept { return std::ssize(of(index)); }
    /// Counts the targets: next tokens that are learned.
    int64_t learned_count(int64_t index) const;
    /// Writes tokens and targets: the next token where that is learned, else kIgnoreIndex.
    void read(int64_t index, int64_t* tokens, int64_t* targets) const;
  };
  struct Problem {
    std::string what, where;
  };

  void add(const EncodedSample& sample, std::vector<float> target);
  void add_bad(const Draft& draft, std::vector<float> target);
  int64_t size() const noexcept { return streams.empty() ? 0 : streams[0].ends.size(); }
  int64_t longest_of(int64_t index) const noexcept;  // longest of its streams
  int64_t sum_of(int64_t index) const noexcept;      // sum of all its streams

  std::vector<Stream> streams;
  Flat<int64_t> seconds;
  Flat<float> numbers;
  int64_t columns = 0;  // count of numbers in a sample
  std::map<int64_t, Problem> problems;
  std::vector<std::string> classes;
  bool has_more = false;  // true: has parts that only some data has: second texts, numbers
  bool is_chat = false;   // true: a chat template has written texts
  int64_t longest = 1, cut = 0, longest_uncut = 0;
  BadRecords bad;
  std::string files;                  // "2 files"
  std::string unread;                 // columns: UnreadColumns::line()
  std::vector<std::string> warnings;  // warnings of their making
};

/// Nouns of the lines about samples.
struct SampleWords {
  std::string sample = "text", behind_sample = {};  // "12 pairs of answers of 1 file"
  std::string tail = {};                            // ", 3 classes"
  std::string is_cut = "";                          // "cut answers of 3 of 12 samples"
  std::string cut_sample = "sample";
  std::string loss_of_cut = {};
  int64_t counted_streams = 1;  // streams whose tokens are reported
  bool tells_learned = false;   // true: the number of learned ones is reported
};

/// Builder of one kind of samples. Serves one dataset.
class SampleBuilder {
 public:
  SampleBuilder(const data::DatasetRequest& request, int64_t streams);
  virtual ~SampleBuilder();
  SampleBuilder(const SampleBuilder&) = delete;
  SampleBuilder& operator=(const SampleBuilder&) = delete;

  // Steps from records to drafts.
  virtual std::vector<std::string> columns() const = 0;
  /// Returns the columns of this record that count. The user is told of columns that no record reads.
  virtual std::vector<std::string> columns_of(const nlohmann::ordered_json& /*record*/) const { return columns(); }
  /// Decides what depends on all records together, and what follow() may change.
  virtual void look_at(const std::vector<Record>& /*records*/) {}
  /// Decides the same as the training data.
  virtual void follow(const data::SampleLayout& /*train*/) {}
  /// Fills the existing draft, or adds more, and may move values out of the record. Thread-safe. Throws Error(data).
  virtual void read(nlohmann::ordered_json& record, std::vector<Draft>& drafts) const = 0;
  /// Reads a trained model's input from a record, without targets.
  virtual void read_input(const nlohmann::ordered_json& record, Draft& draft) const;
  /// Numbers the classes, and does what else needs all drafts. `known` are the classes of the training data.
  virtual void settle(std::vector<Draft>& /*drafts*/, const std::vector<std::string>* /*known*/) {}
  virtual void start() {}                             // is called before texts are made; there may be no tokenizer yet
  virtual void make_texts(Draft& /*draft*/) const {}  // is thread-safe; throws Error(data)
  virtual std::vector<std::string> texts_for_tokenizer(const Draft& draft) const;

  // Steps from drafts to samples. A start that finds the samples made repeats the warnings of `check_texts`.
  virtual void check_texts() const {}
  virtual void ready() {}  // is called once there is a tokenizer
  /// Encodes, cut to `most` tokens each. Thread-safe. Throws Error(data).
  virtual std::vector<EncodedSample> encoded(Draft& draft, int64_t most) const = 0;
  virtual bool keeps_bad() const { return true; }  // true: keeps them as samples that cannot be read
  virtual int64_t usual_length() const;            // applies if neither model nor job sets more
  virtual int64_t least_length() const { return 1; }
  /// Returns the maximum of tokens of one text where a sample, or a row, has at most `most`.
  virtual int64_t most_of_text(int64_t most) const { return most; }
  virtual void check(const MadeSamples& /*made*/, int64_t /*longest*/, const std::string& /*path*/) const {}

  // Samples and their fields.
  virtual data::SampleLayout layout(const MadeSamples& made) const = 0;
  virtual data::SampleLayout packed_layout(int64_t /*length*/, int64_t /*samples*/) const { return {}; }
  virtual bool learns_tokens() const { return false; }  // true: each stream has targets, the next tokens
  virtual bool packs() const { return false; }
  virtual bool divides_in_order() const { return false; }  // true: parts keep the order of the samples
  virtual uint64_t content_hash(const MadeSamples& made, const PackedRows& rows) const;
  virtual SampleWords words(const MadeSamples& made) const = 0;
  virtual void finish_row(int64_t /*index*/, const data::ReadContext& /*context*/,
                          const data::SampleRow& /*row*/) const {}

  const data::TextOptions& options() const noexcept { return options_; }
  const tokenizers::Tokenizer& tokenizer() const noexcept { return *tokenizer_; }
  std::filesystem::path tokenizer_folder() const { return tokenizer_ ? tokenizer_->folder() : std::filesystem::path(); }
  bool is_length_set() const noexcept { return options_.max_length.value.has_value(); }
  Target target() const noexcept { return target_; }

 private:
  friend class TextSamples;

  data::TextOptions options_;
  Target target_;
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer_;

 protected:
  std::vector<std::string> classes_;
  int64_t streams_;
  int64_t columns_ = 0;    // count of numbers in a sample
  bool has_more_ = false;  // see MadeSamples
};

using MakeBuilder = std::function<std::unique_ptr<SampleBuilder>(const data::DatasetRequest&)>;

/// Adds a builder. Throws std::logic_error if something makes samples for the target already.
void add_builder(const Target& target, MakeBuilder make);

/// Registers the builder of these targets.
template <class Builder>
struct RegisteredBuilder {
  explicit RegisteredBuilder(const auto&... targets) {
    (add_builder(targets, [](const data::DatasetRequest& request) { return std::make_unique<Builder>(request); }), ...);
  }
};
/// Returns the builder for the model's target. Throws Error(usage) if there is none.
std::unique_ptr<SampleBuilder> builder_for(const data::DatasetRequest& request);
/// Returns the targets that have a builder.
std::vector<Target> targets_with_builder();

class TextSamples final : public data::Dataset {
 public:
  /// Reads the files that the request names; for a folder, those of the format. Throws Error(data) if more records are
  /// bad than data.max_bad_fraction allows.
  TextSamples(const data::DatasetRequest& request, const RecordFormat& format);
  /// Makes samples of texts that are no records.
  TextSamples(const data::DatasetRequest& request, std::vector<Draft> drafts, std::string files);

  int64_t size() const override { return packs() ? rows_.size() : std::ssize(chosen_); }
  const data::SampleLayout& layout() const override { return layout_; }
  void read(int64_t index, const data::ReadContext& context, const data::SampleRow& row) const override;
  int64_t length(int64_t index) const override;  // returns 0 if packed
  int64_t length_of_pass(int64_t index, int pass) const override;
  bool is_cheap_to_read() const override { return true; }
  std::shared_ptr<const Dataset> part(double begin, double end, data::Split role) const override;
  std::vector<std::string> class_names() const override { return made_->classes; }
  std::optional<int64_t> class_of(int64_t index) const override;  // returns nothing also for a text that cannot be read
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer() const override { return builder_->tokenizer_; }
  uint64_t content_hash() const override { return content_hash_; }
  std::string describe() const override;
  /// Returns whether a chat template has written texts.
  bool is_chat() const noexcept { return made_->is_chat; }

 private:
  TextSamples(const TextSamples& whole, std::vector<int64_t> chosen, data::Split role);

  MadeSamples make_of_records(const data::DatasetRequest& request, AllRecords all, int64_t most);
  std::vector<Draft> drafts_of(std::vector<Record>& records) const;
  MadeSamples make(const data::DatasetRequest& request, std::vector<Draft> drafts, int64_t most);
  int64_t most_of(const data::DatasetRequest& request) const;
  void open(const data::DatasetRequest& request);
  MadeSamples encode(std::vector<Draft>& drafts, int64_t most) const;
  void tell(const data::DatasetRequest& request, int64_t most) const;
  void finish(const data::DatasetRequest& request);
  void lay_out(int64_t most, const data::SampleLayout* train);
  void pack_rows();
  void count_texts_in_rows();
  bool packs() const { return builder_->packs(); }
  void read_packed(int64_t index, const data::SampleRow& row) const;
  size_t write_streams(int64_t sample, const data::SampleRow& row) const;

  std::shared_ptr<SampleBuilder> builder_;
  std::shared_ptr<const MadeSamples> made_;
  std::vector<int64_t> chosen_;  // samples of this part
  bool tells_unread_ = true;     // false: another part tells it
  int64_t row_size_ = 0, most_in_row_ = 0;
  PackedRows rows_;  // samples by their number, if packed
  data::SampleLayout layout_;
  uint64_t content_hash_ = 0;
};

}  // namespace gputrain::records
