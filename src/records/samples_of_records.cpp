#include "samples_of_records.hpp"

#include <utility>

#include "answer_texts.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/data/options.hpp"
#include "labelled_texts.hpp"
#include "labels.hpp"
#include "listed_images.hpp"
#include "masked_texts.hpp"
#include "read_all.hpp"
#include "record_dataset.hpp"
#include "tagged_texts.hpp"
#include "text_pairs.hpp"

namespace gputrain::records {
namespace {

std::shared_ptr<const data::Dataset> masked_texts(const data::DatasetRequest& request, ReadRecords read_records,
                                                  const std::string& extension) {
  const std::string column =
      (request.text != nullptr ? *request.text : data::TextOptions()).columns.text.value_or("text");
  AllRecords all = read_all(request, read_records, extension, {.path = {}, .columns = {column}});
  std::vector<MaskedTexts::Text> texts;
  for (Record& record : all.records) {
    MaskedTexts::Text text{.text = {}, .place = record.place, .problem = record.problem};
    const auto found = record.value.find(column);
    if (text.problem.empty() && (found == record.value.end() || !found->is_string()))
      text.problem = "no text in '" + column + "' (data.text.columns.text names another column)";
    if (text.problem.empty()) text.text = std::move(found->get_ref<std::string&>());
    texts.push_back(std::move(text));
  }
  return std::make_shared<MaskedTexts>(request, std::move(texts), all.files, samples_of<MaskedTexts>(request.train));
}

std::shared_ptr<const data::Dataset> tagged_texts(const data::DatasetRequest& request, ReadRecords read_records,
                                                  const std::string& extension) {
  const data::ColumnNames names = (request.text != nullptr ? *request.text : data::TextOptions()).columns;
  const std::string words = names.words.value_or("tokens"), tags = names.tags.value_or("tags");
  AllRecords all = read_all(request, read_records, extension, {.path = {}, .columns = {words, tags}});
  std::vector<TaggedTexts::Text> texts;
  for (const Record& record : all.records) {
    TaggedTexts::Text text{.words = {}, .tags = {}, .place = record.place, .problem = record.problem};
    for (const auto& [column, list] : {std::pair{words, &text.words}, std::pair{tags, &text.tags}}) {
      if (!text.problem.empty()) break;
      try {
        *list = texts_of_list(record.value, column);
      } catch (const Error& error) {
        text.problem = message_of(error);
      }
    }
    texts.push_back(std::move(text));
  }
  return std::make_shared<TaggedTexts>(request, std::move(texts), all.files, samples_of<TaggedTexts>(request.train));
}

}  // namespace

std::shared_ptr<const data::Dataset> samples_of_records(const data::DatasetRequest& request, ReadRecords read_records,
                                                        const std::string& extension) {
  if (!request.model.reads_tokens()) return listed_images(request, read_records, extension);
  switch (request.model.use) {
    case TextUse::label:
    case TextUse::labels:
    case TextUse::number:
      return std::make_shared<LabelledTexts>(request, read_records, extension);
    case TextUse::masked:
      return masked_texts(request, read_records, extension);
    case TextUse::pairs:
      return std::make_shared<TextPairs>(request, read_records, extension);
    case TextUse::tags:
      return tagged_texts(request, read_records, extension);
    case TextUse::preference:
    case TextUse::rating:
      return std::make_shared<AnswerTexts>(request, read_records, extension);
    case TextUse::next_token:
      break;
  }
  return std::make_shared<RecordDataset>(open_records(request, read_records, extension));
}

}  // namespace gputrain::records
