// Interface by which a task of texts, here or in a plug-in, makes its own samples of records.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/data/dataset.hpp"

namespace gputrain::records {

/// Reader of a record: one text or two, which are the model's input, and numbers, which it learns. All functions are
/// thread-safe, and those that get a record throw Error(data) for one that cannot be used.
class RecordReader {
 public:
  virtual ~RecordReader();

  /// Names the columns that it can read. The user is warned of others.
  virtual std::vector<std::string> columns() const = 0;
  virtual std::vector<std::string> texts(const nlohmann::ordered_json& record) const = 0;
  /// Returns the fields that are learned, float or int64, of one size in all samples, and `outputs`.
  virtual data::SampleLayout learned() const = 0;
  /// Returns the values of these fields, one field after the other.
  virtual std::vector<float> numbers(const nlohmann::ordered_json& record) const = 0;
};

/// Returns the text, or the number, in a column of a record. Throws Error(data), with the hint, if there is none.
std::string text_in(const nlohmann::ordered_json& record, const std::string& column, const std::string& hint = {});
double number_in(const nlohmann::ordered_json& record, const std::string& column, const std::string& hint = {});

using MakeReader = std::unique_ptr<RecordReader> (*)(const data::DatasetRequest&);

/// Makes the samples of a target with this reader. The catalog of tasks calls it for a task that has one. Throws
/// std::logic_error if the target has samples already.
void add_reader(const Target& target, MakeReader make);

}  // namespace gputrain::records
