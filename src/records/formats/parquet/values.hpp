// Values of Arrow's arrays as JSON.
#pragma once

#include <cstdint>

#include <arrow/type_fwd.h>
#include <nlohmann/json.hpp>

namespace gputrain::records {

/// What value_of() saw of strings.
struct TextSeen {
  int64_t bytes = 0;
  bool is_utf8 = true;
};

/// The value at `index`. A list is an array, a struct an object without its null fields, because Parquet has no other
/// way to say that a field is not there; a map is an object if its keys are strings. Dates, decimals and what else JSON
/// has no type for are strings as Arrow writes them. Throws std::runtime_error.
nlohmann::ordered_json value_of(const arrow::Array& array, int64_t index, TextSeen& seen);

}  // namespace gputrain::records
