#include "listed_images.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "gputrain/core/error.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/data/options.hpp"
#include "gputrain/datasets/image_samples.hpp"
#include "labels.hpp"
#include "read_all.hpp"

namespace gputrain::records {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kUsualImage = "image";
constexpr const char* kUsualLabel = "label";

const Json& cell_of(const Json& record, const std::string& column) {
  return value_of_column(record, column, "data.image.columns: {image: NAME, label: NAME or [NAME, NAME]}");
}

/// What a record says.
struct ListedImage {
  std::string path;
  std::vector<std::string> classes;
  std::vector<float> numbers;
  std::string problem;
};

class ListedImages final : public datasets::ImageStore {
 public:
  ListedImages(const data::DatasetRequest& request, ReadRecords read_records, const std::string& extension)
      : use_(request.model.use),
        root_(fs::is_directory(request.path) ? fs::path(request.path) : fs::path(request.path).parent_path()) {
    const data::ImageColumns columns = datasets::image_options(request).columns;
    const std::string image = columns.image.value_or(kUsualImage);
    labels_of_ = columns.label.value_or(std::string(kUsualLabel)).values;
    if (labels_of_.empty() || (labels_of_.size() > 1 && use_ != TextUse::number))
      throw Error(ExitCode::usage,
                  {.what = "a class is in one column, and this names " + counted(std::ssize(labels_of_), "column"),
                   .where = "data.image.columns.label",
                   .hint = "for numbers, task: {type: regression}"});
    RecordFile file{.path = {}, .columns = {image}};
    file.columns.insert(file.columns.end(), labels_of_.begin(), labels_of_.end());
    const AllRecords all = read_all(request, read_records, extension, file);
    std::vector<ListedImage> listed(all.records.size());
    for (size_t i = 0; i < listed.size(); ++i) listed[i].problem = all.records[i].problem;
    for_each_good(listed, [&](size_t i) { listed[i] = read_record(all.records[i].value, image); });
    set_targets(listed, request, all.records);
    check_first(listed, all.records);
  }

  std::string full_name(int64_t index) const override { return (root_ / std::string(name(index))).string(); }

  void read(int64_t index, std::vector<std::byte>& bytes) const override {
    if (const auto problem = problems_.find(index); problem != problems_.end())
      throw Error(ExitCode::data, {.what = problem->second, .where = std::string(name(index))});
    datasets::read_image_file(full_name(index), bytes);
  }

 protected:
  data::Content content(int64_t index) const override { return datasets::content_of_file(full_name(index)); }

 private:
  ListedImage read_record(const Json& record, const std::string& image) const {
    ListedImage listed;
    const Json& path = cell_of(record, image);
    if (!path.is_string() || path.get_ref<const std::string&>().empty())
      throw Error(ExitCode::data, {.what = "'" + image + "' is no path of an image"});
    listed.path = path.get<std::string>();
    for (const std::string& column : labels_of_) {
      const Json& label = cell_of(record, column);
      if (use_ == TextUse::labels) {
        listed.classes = classes_named_in(label);
      } else if (use_ != TextUse::number) {
        listed.classes = {class_named_in(label)};
      } else if (label.is_array() && labels_of_.size() == 1) {
        for (const Json& each : label) listed.numbers.push_back(static_cast<float>(number_in(each)));
      } else {
        listed.numbers.push_back(static_cast<float>(number_in(label)));
      }
    }
    return listed;
  }

  void set_targets(std::vector<ListedImage>& listed, const data::DatasetRequest& request,
                   const std::vector<Record>& records) {
    std::vector<std::string> columns = datasets::known_classes(request);
    if (use_ == TextUse::number) {
      if (columns.empty()) columns = names_of_numbers(listed);
      for_each_good(listed, [&](size_t i) {
        if (listed[i].numbers.size() != columns.size())
          throw Error(ExitCode::data, {.what = counted(std::ssize(listed[i].numbers), "number") + " instead of " +
                                               std::to_string(columns.size())});
      });
    } else if (columns.empty()) {
      for (const ListedImage& one : listed) columns.insert(columns.end(), one.classes.begin(), one.classes.end());
      columns = ClassNames(std::move(columns)).names();
    }
    std::vector<int32_t> labels(listed.size(), 0);
    const bool has_rows = use_ == TextUse::number || use_ == TextUse::labels;
    std::vector<float> rows(has_rows ? listed.size() * columns.size() : 0, 0);
    const ClassNames classes(use_ == TextUse::number ? std::vector<std::string>() : columns);
    for_each_good(listed, [&](size_t i) {
      if (use_ == TextUse::number)
        std::ranges::copy(listed[i].numbers, rows.begin() + static_cast<std::ptrdiff_t>(i * columns.size()));
      for (const std::string& name : listed[i].classes) {
        labels[i] = static_cast<int32_t>(classes.number_of(name));
        if (has_rows) rows[i * columns.size() + static_cast<size_t>(labels[i])] = 1;
      }
    });
    keep(listed, request, records, columns, std::move(labels), std::move(rows));
  }

  void keep(const std::vector<ListedImage>& listed, const data::DatasetRequest& request,
            const std::vector<Record>& records, const std::vector<std::string>& columns, std::vector<int32_t> labels,
            std::vector<float> rows) {
    BadRecords bad{.count = 0, .of = std::ssize(listed)};
    std::vector<std::string> names;
    for (size_t i = 0; i < listed.size(); ++i) {
      names.push_back(listed[i].problem.empty() ? listed[i].path : records[i].place);
      if (listed[i].problem.empty()) continue;
      problems_[static_cast<int64_t>(i)] = listed[i].problem;
      labels[i] = -1;
      if (bad.count++ > 0) continue;
      bad.first_what = listed[i].problem;
      bad.first_where = records[i].place;
    }
    check_bad(bad, request);
    if (rows.empty()) {
      set_labels(names, std::move(labels), columns, request.path);
    } else {
      set_rows(names, std::move(rows), columns);
    }
  }

  std::vector<std::string> names_of_numbers(const std::vector<ListedImage>& listed) const {
    const auto first = std::ranges::find_if(listed, [](const ListedImage& one) { return one.problem.empty(); });
    if (first == listed.end() || first->numbers.size() == labels_of_.size()) return labels_of_;
    std::vector<std::string> names;
    for (size_t i = 0; i < first->numbers.size(); ++i) names.push_back(labels_of_[0] + "_" + std::to_string(i));
    return names;
  }

  /// A wrong folder is found now, not when training has begun.
  void check_first(const std::vector<ListedImage>& listed, const std::vector<Record>& records) const {
    for (size_t i = 0; i < listed.size(); ++i) {
      if (!listed[i].problem.empty()) continue;
      const std::string path = full_name(static_cast<int64_t>(i));
      std::error_code ignored;
      if (fs::exists(path, ignored)) return;
      throw Error(ExitCode::data, {.what = "the image " + printable(path) + " does not exist",
                                   .where = records[i].place,
                                   .hint = "paths are those below the folder of the list, or absolute"});
    }
  }

  TextUse use_;
  fs::path root_;
  std::vector<std::string> labels_of_;  // columns
  std::map<int64_t, std::string> problems_;
};

}  // namespace

std::shared_ptr<const data::Dataset> listed_images(const data::DatasetRequest& request, ReadRecords read_records,
                                                   const std::string& extension) {
  return std::make_shared<datasets::ImageSamples>(std::make_shared<ListedImages>(request, read_records, extension),
                                                  datasets::image_options(request), request.role);
}

}  // namespace gputrain::records
