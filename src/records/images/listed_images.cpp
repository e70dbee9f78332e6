#include "listed_images.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "../formats/unread_columns.hpp"
#include "../labels.hpp"
#include "../read_all.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/log.hpp"
#include "gputrain/core/numbers.hpp"
#include "gputrain/core/printable.hpp"
#include "gputrain/data/options.hpp"
#include "gputrain/datasets/image_samples.hpp"
#include "image_paths.hpp"

namespace gputrain::records {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kColumnsHint =
    "data.image.columns: {image: NAME, label: NAME or [NAME, NAME]}; by number where the first row of a table names no "
    "columns: {image: 0, label: 1}";

/// Columns that the job names, or the usual ones. Names that are all numbers count the columns of a table.
struct ListColumns {
  std::string image = "image";
  std::vector<std::string> labels{"label"};
  bool are_numbers = false;

  explicit ListColumns(const data::ImageColumns& names) {
    image = names.image.value_or(image);
    if (names.label) labels = names.label->values;
    if (labels.empty())
      throw Error(ExitCode::usage, {.what = "no column of labels", .where = "data.image.columns.label"});
    const auto is_number = [](const std::string& name) {
      return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
    };
    are_numbers = names.label && is_number(image) && std::ranges::all_of(labels, is_number);
  }

  std::vector<std::string> all() const {
    std::vector<std::string> all{image};
    all.insert(all.end(), labels.begin(), labels.end());
    return all;
  }
};

const Json& cell_of(const Json& record, const std::string& column) {
  return value_of_column(record, column, kColumnsHint);
}

/// Content of a record.
struct ListedImage {
  std::string path;
  std::vector<uint8_t> bytes;  // bytes of an image that is in the record itself
  bool is_missing = false;
  std::vector<std::string> classes;
  std::vector<float> numbers;
  std::string problem;
};

class ListedImages final : public datasets::ImageStore {
 public:
  ListedImages(const data::DatasetRequest& request, const RecordFormat& format)
      : target_(request.model.target),
        paths_(fs::is_directory(request.path) ? fs::path(request.path) : fs::path(request.path).parent_path()),
        columns_(datasets::image_options(request).columns) {
    AllRecords all =
        read_all(request, format,
                 {.path = {}, .columns = columns_.all(), .are_numbers = columns_.are_numbers, .keeps_bytes = true});
    if (columns_.are_numbers) leave_out_names(all.records);
    const std::vector<std::string> read = columns_.all();
    unread_ = unread_columns(all, [&](const Json&) { return read; }).line();
    std::vector<ListedImage> listed(all.records.size());
    for (size_t i = 0; i < listed.size(); ++i) listed[i].problem = all.records[i].problem;
    for_each_good(listed, [&](size_t i) { read_image(all.records[i].value, listed[i]); });
    read_targets(listed, request, all.records);
  }

  std::string unread() const override { return unread_; }
  std::string full_name(int64_t index) const override {
    const std::string path(name(index));
    return stored_.contains(index) ? path : paths_.full(path);
  }

  void read(int64_t index, std::vector<std::byte>& bytes) const override {
    if (const auto problem = problems_.find(index); problem != problems_.end())
      throw Error(ExitCode::data, {.what = problem->second, .where = std::string(name(index))});
    if (const auto stored = stored_.find(index); stored != stored_.end()) {
      const auto all = std::as_bytes(std::span(stored->second));
      bytes.assign(all.begin(), all.end());
    } else {
      datasets::read_image_file(full_name(index), bytes);
    }
  }

 protected:
  data::Content content(int64_t index) const override {
    const auto stored = stored_.find(index);
    if (stored == stored_.end()) return datasets::content_of_file(full_name(index));
    return data::content_of(std::as_bytes(std::span(stored->second)));
  }

 private:
  /// Leaves out the first row of a table whose columns have numbers if it names them nevertheless: its image is no
  /// file, and that of the second row is one.
  void leave_out_names(std::vector<Record>& records) const {
    const auto has_file = [&](const Record& record) {
      const auto path = record.value.find(columns_.image);
      return path != record.value.end() && path->is_string() && !paths_.found(path->get<std::string>()).empty();
    };
    if (records.size() < 2 || has_file(records[0]) || !has_file(records[1])) return;
    log::warning(records[0].place + ": the first row names the columns, and is no record");
    records.erase(records.begin());
  }

  void read_image(Json& record, ListedImage& listed) const {
    const Json& image = cell_of(record, columns_.image);
    if (image.is_binary() || (image.is_object() && image.contains("bytes") && !image["bytes"].is_null())) {
      Json& cell = record[columns_.image];
      return take_bytes(cell.is_object() ? cell["bytes"] : cell, listed);
    }
    const Json& path = image.is_object() && image.contains("path") ? image["path"] : image;
    if (!path.is_string() || path.get_ref<const std::string&>().empty())
      throw Error(ExitCode::data, {.what = "'" + columns_.image + "' is no path of an image"});
    listed.path = paths_.found(path.get_ref<const std::string&>());
    if (!listed.path.empty()) return;
    listed.is_missing = true;
    listed.path = path.get<std::string>();
    throw Error(
        ExitCode::data,
        {.what = "the image " + printable(listed.path) + " does not exist", .where = {}, .hint = paths_.hint()});
  }

  static void take_bytes(Json& value, ListedImage& listed) {
    if (value.is_binary()) listed.bytes = std::move(value.get_binary());
    if (value.is_string()) {
      const auto& text = value.get_ref<const std::string&>();
      listed.bytes.assign(text.begin(), text.end());
    }
    if (listed.bytes.empty()) throw Error(ExitCode::data, {.what = "the image has no bytes"});
  }

  void read_numbers(const Json& record, ListedImage& listed) const {
    for (const std::string& column : columns_.labels) {
      const Json& label = cell_of(record, column);
      if (label.is_array() && columns_.labels.size() == 1) {
        for (const Json& each : label) listed.numbers.push_back(static_cast<float>(number_in(each)));
      } else {
        listed.numbers.push_back(static_cast<float>(number_in(label)));
      }
    }
  }

  void read_targets(std::vector<ListedImage>& listed, const data::DatasetRequest& request,
                    const std::vector<Record>& records) {
    std::vector<std::string> names = datasets::known_classes(request);
    if (target_ == Target::number) {
      for_each_good(listed, [&](size_t i) { read_numbers(records[i].value, listed[i]); });
      if (names.empty()) names = names_of_numbers(listed);
      for_each_good(listed, [&](size_t i) {
        if (listed[i].numbers.size() != names.size())
          throw Error(ExitCode::data, {.what = counted(std::ssize(listed[i].numbers), "number") + " instead of " +
                                               std::to_string(names.size())});
      });
    } else {
      read_classes(listed, names, records, request.path);
    }
    set_targets(listed, request, records, names);
  }

  /// Reads classes, and fills `names` unless it has those of the training data.
  void read_classes(std::vector<ListedImage>& listed, std::vector<std::string>& names,
                    const std::vector<Record>& records, const std::string& where) const {
    std::vector<const Json*> good;
    for (size_t i = 0; i < listed.size(); ++i)
      if (listed[i].problem.empty()) good.push_back(&records[i].value);
    const RecordClasses classes(good, columns_.labels, target_ == Target::labels, names, kColumnsHint);
    classes.warn(where);
    for_each_good(listed, [&](size_t i) { listed[i].classes = classes.in(records[i].value); });
    if (!names.empty()) return;
    names = classes.fixed();
    if (names.empty())
      for (const ListedImage& one : listed) names.insert(names.end(), one.classes.begin(), one.classes.end());
    names = ClassNames(std::move(names)).names();
    warn_of_similar(names, where);
  }

  void set_targets(std::vector<ListedImage>& listed, const data::DatasetRequest& request,
                   const std::vector<Record>& records, const std::vector<std::string>& names) {
    std::vector<int32_t> labels(listed.size(), 0);
    const bool has_rows = target_ == Target::number || target_ == Target::labels;
    std::vector<float> rows(has_rows ? listed.size() * names.size() : 0, 0);
    const ClassNames classes(target_ == Target::number ? std::vector<std::string>() : names);
    for_each_good(listed, [&](size_t i) {
      if (target_ == Target::number)
        std::ranges::copy(listed[i].numbers, rows.begin() + static_cast<std::ptrdiff_t>(i * names.size()));
      for (const std::string& name : listed[i].classes) {
        labels[i] = static_cast<int32_t>(classes.number_of(name));
        if (has_rows) rows[i * names.size() + static_cast<size_t>(labels[i])] = 1;
      }
    });
    keep(listed, request, records, names, std::move(labels), std::move(rows));
  }

  void keep(std::vector<ListedImage>& listed, const data::DatasetRequest& request, const std::vector<Record>& records,
            const std::vector<std::string>& columns, std::vector<int32_t> labels, std::vector<float> rows) {
    name_more_missing(listed);
    BadRecords bad{.count = 0, .of = std::ssize(listed)};
    std::vector<std::string> names;
    for (size_t i = 0; i < listed.size(); ++i) {
      const auto index = static_cast<int64_t>(i);
      const bool is_good = listed[i].problem.empty();
      names.push_back(is_good && listed[i].bytes.empty() ? listed[i].path : records[i].place);
      if (is_good && !listed[i].bytes.empty()) stored_[index] = std::move(listed[i].bytes);
      if (is_good) continue;
      problems_[index] = listed[i].problem;
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

  /// Adds a few more names to the message of the first image without a file.
  static void name_more_missing(std::vector<ListedImage>& listed) {
    constexpr int kMost = 3;
    const auto first = std::ranges::find_if(listed, &ListedImage::is_missing);
    int64_t count = std::ranges::count_if(first, listed.end(), &ListedImage::is_missing);
    if (count < 2) return;
    std::string others;
    int64_t named = 0;
    for (auto one = first + 1; one != listed.end() && named < kMost; ++one)
      if (one->is_missing && ++named > 0) others += (others.empty() ? "" : ", ") + printable(one->path);
    --count;
    first->problem += "; nor " + std::string(count == 1 ? "does " : "do ") + others +
                      (count > named ? " and " + grouped(count - named) + " more images" : "");
  }

  std::vector<std::string> names_of_numbers(const std::vector<ListedImage>& listed) const {
    const std::vector<std::string>& columns = columns_.labels;
    const auto first = std::ranges::find_if(listed, [](const ListedImage& one) { return one.problem.empty(); });
    if (first == listed.end() || first->numbers.size() == columns.size()) return columns;
    std::vector<std::string> names;
    for (size_t i = 0; i < first->numbers.size(); ++i) names.push_back(columns[0] + "_" + std::to_string(i));
    return names;
  }

  Target target_;
  ImagePaths paths_;
  ListColumns columns_;
  std::string unread_;  // columns: UnreadColumns::line()
  std::map<int64_t, std::string> problems_;
  std::map<int64_t, std::vector<uint8_t>> stored_;  // images that are in the records themselves
};

}  // namespace

std::unique_ptr<data::Dataset> listed_images(const data::DatasetRequest& request, const RecordFormat& format) {
  return std::make_unique<datasets::ImageSamples>(std::make_shared<ListedImages>(request, format),
                                                  datasets::image_options(request), request.role);
}

}  // namespace gputrain::records
