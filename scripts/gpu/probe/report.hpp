// The probe's results: flat records, each printed at once as a line "SECTION {...}" on stdout, so that an interrupted
// run keeps them.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace probe {

/// One measurement: names and values, in the order they were set.
class Record {
 public:
  Record& set(const std::string& name, const std::string& value);
  Record& set(const std::string& name, const char* value) { return set(name, std::string(value)); }
  Record& set(const std::string& name, double value);
  Record& set(const std::string& name, int64_t value);
  Record& set(const std::string& name, int value) { return set(name, static_cast<int64_t>(value)); }
  Record& set(const std::string& name, bool value);
  [[nodiscard]] std::string json() const;

 private:
  std::vector<std::pair<std::string, std::string>> fields_;  // values are already JSON
};

class Report {
 public:
  /// Runs `measure` on `record`, which already says what is measured, and prints it. An exception becomes the record's
  /// "error", so that the other measurements continue.
  void attempt(const std::string& section, Record record, const std::function<void(Record&)>& measure);
};

}  // namespace probe
