#include "text_samples.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "../formats/first_row.hpp"
#include "../formats/unread_columns.hpp"
#include "../tokens/encoded_texts.hpp"
#include "gputrain/core/activity.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/taken_warnings.hpp"
#include "gputrain/data/answer_fields.hpp"
#include "gputrain/data/batch.hpp"
#include "gputrain/data/signature.hpp"
#include "gputrain/data/subset.hpp"
#include "sample_file.hpp"

namespace gputrain::records {
namespace {

enum PackedFields : size_t { kRowTokens, kRowTarget, kRowPositions, kRowTexts, kRowSamples, kRowGood };

bool is_table(const RecordFormat& format) { return format.name == "csv" || format.name == "tsv"; }

std::string reason_of(const data::DatasetRequest& request) {
  if (request.sequence_length == 0)
    return (request.role == data::Split::train ? "what is usual" : "as those of data.train") +
           std::string("; data.text.max_length sets it");
  return request.text != nullptr && request.text->max_length.value == request.sequence_length
             ? "data.text.max_length"
             : "the most that the model takes";
}

}  // namespace

TextSamples::TextSamples(const data::DatasetRequest& request, const RecordFormat& format)
    : builder_(builder_for(request)) {
  const std::vector<std::string> files = record_files(request, format);
  request.tell_files(files);
  open(request);
  const std::string key = samples_key(request, format.name, files, builder_->tokenizer_.get(), most_of(request));
  made_ = shared_samples(samples_folder(), key, [&] {
    log::TakenWarnings warnings;
    const std::optional<NumberedColumns> numbered = numbered_columns(builder_->options().columns, builder_->target());
    AllRecords all = read_files(request, files, format,
                                {.path = {}, .columns = builder_->columns(), .are_numbers = numbered.has_value()});
    if (numbered && is_table(format)) leave_out_names(all, *numbered);
    MadeSamples made = make_of_records(request, std::move(all), most_of(request));
    made.warnings = warnings.take();
    return made;
  });
  for (const std::string& warning : made_->warnings) log::warning(warning);
  finish(request);
}

TextSamples::TextSamples(const data::DatasetRequest& request, std::vector<Draft> drafts, std::string files)
    : builder_(builder_for(request)) {
  open(request);
  MadeSamples made = make(request, std::move(drafts), most_of(request));
  made.files = std::move(files);
  made_ = std::make_shared<const MadeSamples>(std::move(made));
  finish(request);
}

TextSamples::TextSamples(const TextSamples& whole, std::vector<int64_t> chosen, data::Split role)
    : builder_(whole.builder_),
      made_(whole.made_),
      chosen_(std::move(chosen)),
      tells_unread_(role == data::Split::train),
      row_size_(whole.row_size_),
      layout_(whole.layout_),
      content_hash_(whole.content_hash_) {
  if (!packs()) return;
  pack_rows();
  count_texts_in_rows();
}

/// Finds the tokenizer, unless it is to be built from the texts.
void TextSamples::open(const data::DatasetRequest& request) {
  if ((request.train != nullptr && request.train->tokenizer) || !is_tokenizer_built_from_texts(request))
    builder_->tokenizer_ = tokenizer_for(request, {});
}

/// Returns the maximum of tokens in a sample, or in a row. Without a limit in the job, the model is built for the
/// longest text of the training data, so all others are cut to it.
int64_t TextSamples::most_of(const data::DatasetRequest& request) const {
  if (request.sequence_length > 0) return request.sequence_length;
  const int64_t learned = request.train != nullptr ? request.train->layout.token_count() : 0;
  return learned > 0 ? learned : builder_->usual_length();
}

MadeSamples TextSamples::make_of_records(const data::DatasetRequest& request, AllRecords all, int64_t most) {
  builder_->look_at(all.records);
  if (request.train != nullptr) builder_->follow(request.train->layout);
  const UnreadColumns unread =
      unread_columns(all, [&](const nlohmann::ordered_json& record) { return builder_->columns_of(record); });
  unread.warn(request.path);
  MadeSamples made = make(request, drafts_of(all.records), most);
  made.files = std::move(all.files);
  made.unread = unread.line();
  return made;
}

/// Makes drafts, and frees each record once it is read: its values take more memory than its texts.
std::vector<Draft> TextSamples::drafts_of(std::vector<Record>& records) const {
  std::vector<std::vector<Draft>> drafts(records.size());
  datasets::parallel_for(records.size(), [&](size_t i) {
    Record& record = records[i];
    drafts[i].push_back({.place = std::move(record.place), .problem = std::move(record.problem)});
    if (!drafts[i][0].problem.empty()) return;
    try {
      builder_->read(record.value, drafts[i]);
    } catch (const Error& error) {
      if (error.code() != ExitCode::data) throw;
      drafts[i][0].problem = message_of(error);
    }
    record.value = nullptr;
  });
  std::vector<Draft> all;
  all.reserve(drafts.size());
  for (std::vector<Draft>& some : drafts) {
    std::ranges::move(some, std::back_inserter(all));
    some = {};
  }
  return all;
}

MadeSamples TextSamples::make(const data::DatasetRequest& request, std::vector<Draft> drafts, int64_t most) {
  builder_->settle(drafts, request.train != nullptr ? &request.train->class_names : nullptr);
  builder_->start();
  for_each_good(drafts, [&](size_t i) { builder_->make_texts(drafts[i]); });
  if (builder_->tokenizer_ == nullptr) {
    std::vector<std::string> texts;
    for (const Draft& draft : drafts)
      std::ranges::move(builder_->texts_for_tokenizer(draft), std::back_inserter(texts));
    builder_->tokenizer_ = tokenizer_for(request, texts);
  }
  builder_->check_texts();
  const bool is_chat = std::ranges::any_of(drafts, [](const Draft& draft) {
    return std::ranges::any_of(draft.texts, [](const LearnedText& text) { return !text.is_plain; });
  });
  MadeSamples made = encode(drafts, builder_->most_of_text(most));
  made.is_chat = is_chat;
  return made;
}

void TextSamples::finish(const data::DatasetRequest& request) {
  builder_->ready();
  const int64_t most = most_of(request);
  tell(request, builder_->most_of_text(most));
  lay_out(most, request.train != nullptr ? &request.train->layout : nullptr);
}

/// Encodes some drafts at a time, so that tokens are not in memory twice.
MadeSamples TextSamples::encode(std::vector<Draft>& drafts, int64_t most) const {
  constexpr size_t kAtOnce = 1 << 14;
  MadeSamples made{.streams = std::vector<MadeSamples::Stream>(static_cast<size_t>(builder_->streams_)),
                   .columns = builder_->columns_,
                   .classes = builder_->classes_,
                   .has_more = builder_->has_more_,
                   .longest = builder_->least_length()};
  Activity activity("data", "tokenising records", std::ssize(drafts));
  for (size_t begin = 0; begin < drafts.size(); begin += kAtOnce) {
    const auto some = std::span(drafts).subspan(begin, std::min(kAtOnce, drafts.size() - begin));
    std::vector<std::vector<EncodedSample>> samples(some.size());
    for_each_good(some, [&](size_t i) { samples[i] = builder_->encoded(some[i], most); });
    for (size_t i = 0; i < some.size(); ++i) {
      Draft draft = std::exchange(some[i], {});
      for (const EncodedSample& sample : samples[i]) made.add(sample, draft.numbers);
      ++made.bad.of;
      if (draft.problem.empty()) continue;
      if (made.bad.count++ == 0) {
        made.bad.first_what = draft.problem;
        made.bad.first_where = draft.place;
      }
      if (builder_->keeps_bad())
        made.add_bad(draft, builder_->learns_tokens() ? std::vector<float>() : std::move(draft.numbers));
    }
    activity.add(std::ssize(some));
  }
  return made;
}

/// Refuses bad samples, or warns of them.
void TextSamples::tell(const data::DatasetRequest& request, int64_t most) const {
  check_bad(made_->bad, request);
  if (made_->cut > 0) {
    const SampleWords words = builder_->words(*made_);
    log::warning(fmt::format("{}: cut {}{} of {} after {} tokens ({}){}; the longest has {}", request.path,
                             words.is_cut, grouped(made_->cut), counted(made_->size(), words.cut_sample), grouped(most),
                             reason_of(request), words.loss_of_cut, grouped(made_->longest_uncut)));
  }
  builder_->check(*made_, made_->longest, request.path);
}

/// Lays out samples. The job's length is the length of packed rows; otherwise it is a limit.
void TextSamples::lay_out(int64_t most, const data::SampleLayout* train) {
  chosen_.resize(static_cast<size_t>(made_->size()));
  std::iota(chosen_.begin(), chosen_.end(), 0);
  const int64_t learned = train != nullptr ? train->token_count() : 0;
  if (packs()) {
    int64_t longest = std::max<int64_t>(2, learned);
    for (const int64_t sample : chosen_) longest = std::max(longest, made_->sum_of(sample));
    row_size_ = builder_->is_length_set() ? most : std::min(most, longest);
    // Rows of the training data's size also get its number of samples, so that all batches have one shape.
    const data::Field* samples = train != nullptr ? train->find(data::kIsSample) : nullptr;
    if (samples != nullptr && row_size_ == learned) most_in_row_ = samples->sizes[0];
    pack_rows();
  }
  content_hash_ = builder_->content_hash(*made_, rows_);
  layout_ = packs() ? builder_->packed_layout(row_size_, most_in_row_) : builder_->layout(*made_);
  for (data::Field& field : layout_.fields)
    if (field.ragged) field.sizes.front() = std::max(field.sizes.front(), learned);
  layout_.vocabulary = builder_->tokenizer().vocabulary_size();
  if (packs()) count_texts_in_rows();
}

/// Counts texts; the end of a row is one more.
void TextSamples::count_texts_in_rows() {
  layout_.texts_in_row = 0;
  layout_.longest_text = made_->longest;
  for (int64_t row = 0; row < rows_.size(); ++row) {
    int64_t texts = 1, end = row_size_;
    for (const int64_t sample : rows_.row(row)) {
      texts += std::ssize(made_->streams);
      end -= made_->sum_of(sample);
    }
    layout_.texts_in_row = std::max(layout_.texts_in_row, texts);
    layout_.longest_text = std::max(layout_.longest_text, end);
  }
}

void TextSamples::pack_rows() {
  std::erase_if(chosen_, [&](int64_t sample) { return made_->sum_of(sample) == 0; });
  std::vector<int64_t> lengths;
  for (const int64_t sample : chosen_) lengths.push_back(made_->sum_of(sample));
  rows_ = pack(lengths, row_size_, most_in_row_);
  for (int64_t& place : rows_.samples) place = chosen_[static_cast<size_t>(place)];
  if (builder_->divides_in_order()) return;  // its rows may have any number of samples
  most_in_row_ = std::max<int64_t>(most_in_row_, 1);
  for (int64_t row = 0; row < rows_.size(); ++row) most_in_row_ = std::max(most_in_row_, std::ssize(rows_.row(row)));
}

int64_t TextSamples::length(int64_t index) const {
  return packs() ? 0 : std::max<int64_t>(1, made_->longest_of(chosen_[static_cast<size_t>(index)]));
}

int64_t TextSamples::length_of_pass(int64_t index, int pass) const {
  const bool has_passes = std::ranges::any_of(layout_.fields, [](const data::Field& field) { return field.pass > 0; });
  if (packs() || !has_passes) return length(index);
  return std::max<int64_t>(1, made_->streams[static_cast<size_t>(pass)].length(chosen_[static_cast<size_t>(index)]));
}

void TextSamples::read(int64_t index, const data::ReadContext& context, const data::SampleRow& row) const {
  if (packs()) return read_packed(index, row);
  const int64_t sample = chosen_[static_cast<size_t>(index)];
  if (const auto problem = made_->problems.find(sample); problem != made_->problems.end())
    throw Error(ExitCode::data, {.what = problem->second.what, .where = problem->second.where});
  const float* number = made_->numbers.values().data() + sample * made_->columns;
  for (size_t field = write_streams(sample, row); made_->columns > 0 && field < layout_.fields.size(); ++field) {
    const int64_t count = layout_.fields[field].numel();
    if (layout_.fields[field].type == at::kLong) {
      std::transform(number, number + count, row.values<int64_t>(field),
                     [](float value) { return static_cast<int64_t>(value); });
    } else {
      std::copy_n(number, count, row.values<float>(field));
    }
    number += count;
  }
  builder_->finish_row(sample, context, row);
}

/// Writes the streams; returns the number of the next field.
size_t TextSamples::write_streams(int64_t sample, const data::SampleRow& row) const {
  size_t field = 0;
  for (const MadeSamples::Stream& stream : made_->streams) {
    const int64_t count = stream.length(sample);
    if (builder_->learns_tokens()) {
      stream.read(sample, row.values<int64_t>(field), row.values<int64_t>(field + 1));
      row.set_count(field++, count);
    } else {
      std::ranges::transform(stream.of(sample), row.values<int64_t>(field),
                             [](uint32_t token) { return static_cast<int32_t>(token); });
    }
    row.set_count(field++, count);
    if (field < layout_.fields.size() && layout_.fields[field].name == kTokenTypes) {
      const int64_t second = made_->seconds[static_cast<size_t>(sample)];
      auto* types = row.values<int64_t>(field);
      for (int64_t i = 0; i < count; ++i) types[i] = i < second ? 0 : 1;
      row.set_count(field++, count);
    }
  }
  return field;
}

void TextSamples::read_packed(int64_t index, const data::SampleRow& row) const {
  const size_t fields = layout_.fields.size();
  auto *tokens = row.values<int64_t>(kRowTokens), *targets = row.values<int64_t>(kRowTarget),
       *positions = row.values<int64_t>(kRowPositions),
       *texts = fields > kRowTexts ? row.values<int64_t>(kRowTexts) : nullptr;
  int64_t at = 0, text = 0;
  for (const int64_t sample : rows_.row(index)) {
    for (const MadeSamples::Stream& stream : made_->streams) {
      const int64_t length = stream.length(sample);
      stream.read(sample, tokens + at, targets + at);
      std::iota(positions + at, positions + at + length, 0);
      if (texts != nullptr) std::fill_n(texts + at, length, text++);
      at += length;
    }
  }
  // The rest counts as one more text, and nothing of it is learned.
  std::iota(positions + at, positions + row_size_, 0);
  std::fill(tokens + at, tokens + row_size_, 0);
  std::fill(targets + at, targets + row_size_, kIgnoreIndex);
  if (texts == nullptr) return;
  std::fill(texts + at, texts + row_size_, -1);
  const int64_t most = layout_.fields[kRowSamples].sizes[0];
  auto* is_sample = row.values<int64_t>(kRowSamples);
  std::fill_n(is_sample, most, kIgnoreIndex);
  std::fill_n(is_sample, rows_.row(index).size(), 0);
  if (fields <= kRowGood) return;
  float* good = row.values<float>(kRowGood);
  std::fill_n(good, most, 0.0F);
  for (const int64_t sample : rows_.row(index)) *good++ = made_->numbers[static_cast<size_t>(sample)];
}

std::shared_ptr<const data::Dataset> TextSamples::part(double begin, double end, data::Split role) const {
  if (!builder_->divides_in_order()) return nullptr;
  const auto all = std::ssize(chosen_);
  const auto place = [&](double fraction) { return std::llround(fraction * static_cast<double>(all)); };
  std::vector<int64_t> chosen;
  for (int64_t i = place(begin); i < place(end); ++i)
    chosen.push_back(chosen_[static_cast<size_t>(data::sample_of_split(i, all))]);
  if (chosen.empty()) throw Error(ExitCode::data, {.what = "less than one sample", .where = made_->files});
  std::ranges::sort(chosen);
  return std::shared_ptr<const TextSamples>(new TextSamples(*this, std::move(chosen), role));
}

std::optional<int64_t> TextSamples::class_of(int64_t index) const {
  const int64_t sample = packs() ? 0 : chosen_[static_cast<size_t>(index)];
  if (builder_->target() != Target::label || made_->problems.contains(sample)) return std::nullopt;
  return static_cast<int64_t>(made_->numbers[static_cast<size_t>(sample)]);
}

std::string TextSamples::describe() const {
  const SampleWords words = builder_->words(*made_);
  int64_t tokens = 0, all_tokens = 0, learned = 0;
  for (const int64_t sample : chosen_) {
    all_tokens += made_->sum_of(sample);
    for (int64_t stream = 0; stream < words.counted_streams; ++stream) {
      const MadeSamples::Stream& one = made_->streams[static_cast<size_t>(stream)];
      tokens += one.length(sample);
      if (words.tells_learned) learned += one.learned_count(sample);
    }
  }
  std::string text = fmt::format("{}{} of {}, {}", counted(std::ssize(chosen_), words.sample), words.behind_sample,
                                 made_->files, counted(tokens, "token"));
  if (words.tells_learned) text += ", " + grouped(learned) + " learned";
  const std::string unread = made_->unread.empty() || !tells_unread_ ? "" : "; not read: " + made_->unread;
  if (!packs()) return text + ", at most " + grouped(layout_.token_count()) + " each" + words.tail + unread;
  const double room = static_cast<double>(rows_.size()) * static_cast<double>(row_size_);
  return text +
         fmt::format(", packed into {} of {}, {:.1f} % full", counted(rows_.size(), "row"), grouped(row_size_),
                     100 * static_cast<double>(all_tokens) / room) +
         unread;
}

}  // namespace gputrain::records
