// Samples of a task that has a reader of records.
#include "gputrain/records/record_reader.hpp"

#include <algorithm>
#include <utility>

#include "../labels.hpp"
#include "framed_samples.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::records {
namespace {

class ReadSamples final : public FramedSamples {
 public:
  ReadSamples(const data::DatasetRequest& request, std::unique_ptr<RecordReader> reader)
      : FramedSamples(request), reader_(std::move(reader)), learned_(reader_->learned()) {
    for (const data::Field& field : learned_.fields) columns_ += field.numel();
  }

  std::vector<std::string> columns() const override { return reader_->columns(); }

  void read_input(const nlohmann::ordered_json& record, Draft& draft) const override {
    for (std::string& text : reader_->texts(record)) draft.texts.push_back({.text = std::move(text)});
    GPUTRAIN_ASSERT(draft.texts.size() == 1 || draft.texts.size() == 2, "a reader gives one text or two");
  }

  void read(nlohmann::ordered_json& record, std::vector<Draft>& drafts) const override {
    read_input(record, drafts.back());
    drafts.back().numbers = reader_->numbers(record);
    GPUTRAIN_ASSERT(std::ssize(drafts.back().numbers) == columns_, "a reader gives as many numbers as its fields have");
  }

  data::SampleLayout layout(const MadeSamples& made) const override {
    data::SampleLayout layout = layout_of_tokens(made);
    layout.fields.insert(layout.fields.end(), learned_.fields.begin(), learned_.fields.end());
    layout.outputs = learned_.outputs;
    return layout;
  }

  SampleWords words(const MadeSamples& made) const override {
    return {.tail = ", " + counted(made.columns, "number") + " each"};
  }

 private:
  std::unique_ptr<RecordReader> reader_;
  data::SampleLayout learned_;
};

}  // namespace

RecordReader::~RecordReader() = default;

std::string text_in(const nlohmann::ordered_json& record, const std::string& column, const std::string& hint) {
  const auto& value = value_of_column(record, column, hint);
  if (value.is_string()) return value.get<std::string>();
  throw Error(ExitCode::data, {.what = "'" + column + "' is no text but " + std::string(value.type_name())});
}

double number_in(const nlohmann::ordered_json& record, const std::string& column, const std::string& hint) {
  return number_in(value_of_column(record, column, hint));
}

void add_reader(const Target& target, MakeReader make) {
  add_builder(target, [make](const data::DatasetRequest& request) {
    return std::make_unique<ReadSamples>(request, make(request));
  });
}

}  // namespace gputrain::records
