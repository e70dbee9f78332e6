// Texts, or pairs of texts, each with a class, a set of classes or a number.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "../labels.hpp"
#include "framed_samples.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/data/batch.hpp"
#include "gputrain/data/signature.hpp"
#include "gputrain/records/record_reader.hpp"

namespace gputrain::records {
namespace {

constexpr const char* kLabelHint =
    "data.text.columns: {text: NAME, label: NAME}; by number where the first row does not name them: {text: 0, "
    "label: 1}";

/// Samples with the fields of the texts, and target: int64 for a class, float for a number, float [classes] of zeros
/// and ones for a set of classes.
class LabelledTexts final : public FramedSamples {
 public:
  explicit LabelledTexts(const data::DatasetRequest& request)
      : FramedSamples(request),
        text_(options().columns.text.value_or("text")),
        pair_(options().columns.text_pair.value_or("text_pair")),
        labels_{"label"},
        path_(request.path) {
    if (options().columns.label && !options().columns.label->values.empty()) labels_ = options().columns.label->values;
    if (request.train != nullptr) known_ = request.train->class_names;
    if (target() == Target::number && labels_.size() > 1)
      throw Error(ExitCode::usage,
                  {.what = "a text has one number, and this names " + counted(std::ssize(labels_), "column"),
                   .where = "data.text.columns.label",
                   .hint = "for a set of classes, task: {type: multi_label_classification}"});
    columns_ = 1;
  }

  std::vector<std::string> columns() const override {
    std::vector<std::string> all{text_, pair_};
    all.insert(all.end(), labels_.begin(), labels_.end());
    return all;
  }

  void look_at(const std::vector<Record>& records) override {
    if (target() == Target::number) return;
    std::vector<const nlohmann::ordered_json*> good;
    for (const Record& record : records)
      if (record.problem.empty()) good.push_back(&record.value);
    read_classes_.emplace(good, labels_, target() == Target::labels, known_, kLabelHint);
    read_classes_->warn(path_);
  }

  void read_input(const nlohmann::ordered_json& record, Draft& draft) const override {
    draft.texts.push_back({.text = text_in(record, text_, kLabelHint)});
    const auto pair = record.find(pair_);
    if (options().columns.text_pair || (pair != record.end() && !pair->is_null()))
      draft.texts.push_back({.text = text_in(record, pair_, kLabelHint)});
  }

  void read(nlohmann::ordered_json& record, std::vector<Draft>& drafts) const override {
    Draft& draft = drafts.back();
    read_input(record, draft);
    if (target() == Target::number) {
      draft.numbers = {static_cast<float>(number_in(record, labels_[0], kLabelHint))};
    } else {
      draft.names = read_classes_->in(record);
    }
  }

  /// Numbers the classes. Those of the training data are those that its labels name; other data must keep to them.
  void settle(std::vector<Draft>& drafts, const std::vector<std::string>* known) override {
    FramedSamples::settle(drafts, known);
    if (target() == Target::number) return;
    std::vector<std::string> names = known != nullptr ? *known : read_classes_->fixed();
    if (names.empty())
      for (const Draft& draft : drafts) names.insert(names.end(), draft.names.begin(), draft.names.end());
    const ClassNames classes(std::move(names));
    classes_ = classes.names();
    if (known == nullptr) warn_of_similar(classes_, path_);
    if (target() == Target::labels) columns_ = std::max<int64_t>(1, std::ssize(classes_));
    for_each_good(drafts, [&](size_t i) {
      drafts[i].numbers.resize(static_cast<size_t>(columns_));
      for (const std::string& name : std::exchange(drafts[i].names, {})) {
        const int64_t number = classes.number_of(name);
        if (target() == Target::labels) {
          drafts[i].numbers[static_cast<size_t>(number)] = 1;
        } else {
          drafts[i].numbers[0] = static_cast<float>(number);
        }
      }
    });
  }

  data::SampleLayout layout(const MadeSamples& made) const override {
    data::SampleLayout layout = layout_of_tokens(made);
    data::Field learned{.name = kTarget, .fill = kIgnoreIndex, .target = true};
    if (target() != Target::label) {
      learned.type = at::kFloat;
      learned.fill = std::nan("");
      if (target() == Target::labels) learned.sizes = {made.columns};
    }
    layout.fields.push_back(std::move(learned));
    layout.outputs = target() == Target::number ? 1 : std::ssize(made.classes);
    return layout;
  }

  SampleWords words(const MadeSamples& made) const override {
    return {.tail = target() == Target::number ? ", a number each" : ", " + counted(std::ssize(made.classes), "class")};
  }

 private:
  std::string text_, pair_;
  std::vector<std::string> labels_, known_;
  std::string path_;
  std::optional<RecordClasses> read_classes_;
};

const RegisteredBuilder<LabelledTexts> registered_labelled{Target::label, Target::labels, Target::number};

}  // namespace
}  // namespace gputrain::records
