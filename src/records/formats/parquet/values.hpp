// Values of Arrow's arrays as JSON.
#pragma once

#include <cstdint>

#include <arrow/type_fwd.h>
#include <nlohmann/json.hpp>

namespace gputrain::records {

/// Facts about the strings that value_of() saw.
struct TextSeen {
  int64_t bytes = 0;
  bool is_utf8 = true;
};

/// Returns the value at `index`. A list is an array, a struct an object without its null fields, because Parquet has no
/// other way to say that a field is missing; a map is an object if its keys are strings. Dates, decimals and other
/// types that JSON lacks are strings as Arrow writes them. Throws std::runtime_error.
nlohmann::ordered_json value_of(const arrow::Array& array, int64_t index, TextSeen& seen);

}  // namespace gputrain::records
