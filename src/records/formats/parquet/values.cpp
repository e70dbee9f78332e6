#include "values.hpp"

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <arrow/api.h>
#include <arrow/extension_type.h>
#include <arrow/util/float16.h>
#include <arrow/util/utf8.h>

namespace gputrain::records {
namespace {

using Json = nlohmann::ordered_json;

template <class Array>
const Array& as(const arrow::Array& array) {
  return static_cast<const Array&>(array);  // the type's id says so
}

template <class Array>
Json text_at(const arrow::Array& array, int64_t index, TextSeen& seen) {
  const std::string_view text = as<Array>(array).GetView(index);
  seen.bytes += static_cast<int64_t>(text.size());
  seen.is_utf8 = seen.is_utf8 && arrow::util::ValidateUTF8(text);
  return std::string(text);
}

/// Returns text where the bytes can be text, since some programs do not mark texts as such; else the bytes.
template <class Array>
Json bytes_at(const arrow::Array& array, int64_t index, TextSeen& seen) {
  const std::string_view bytes = as<Array>(array).GetView(index);
  if (arrow::util::ValidateUTF8(bytes)) return text_at<Array>(array, index, seen);
  seen.bytes += static_cast<int64_t>(bytes.size());
  seen.is_utf8 = false;
  return Json::binary({bytes.begin(), bytes.end()});
}

template <class Array>
Json number_at(const arrow::Array& array, int64_t index) {
  return as<Array>(array).Value(index);
}

Json range_of(const arrow::Array& values, int64_t begin, int64_t length, TextSeen& seen) {
  Json list = Json::array();
  for (int64_t i = begin; i < begin + length; ++i) list.push_back(value_of(values, i, seen));
  return list;
}

template <class Array>
Json list_at(const arrow::Array& array, int64_t index, TextSeen& seen) {
  const auto& lists = as<Array>(array);
  return range_of(*lists.values(), lists.value_offset(index), lists.value_length(index), seen);
}

Json struct_at(const arrow::StructArray& array, int64_t index, TextSeen& seen) {
  Json object = Json::object();
  for (int i = 0; i < array.num_fields(); ++i) {
    const arrow::Array& field = *array.field(i);  // sliced as the struct is
    if (!field.IsNull(index)) object[array.struct_type()->field(i)->name()] = value_of(field, index, seen);
  }
  return object;
}

Json map_at(const arrow::MapArray& array, int64_t index, TextSeen& seen) {
  const int64_t begin = array.value_offset(index), end = begin + array.value_length(index);
  Json object = Json::object(), pairs = Json::array();
  for (int64_t i = begin; i < end; ++i) {
    Json key = value_of(*array.keys(), i, seen), value = value_of(*array.items(), i, seen);
    if (key.is_string()) {
      object[key.get<std::string>()] = std::move(value);
    } else {
      pairs.push_back({std::move(key), std::move(value)});
    }
  }
  return pairs.empty() ? object : pairs;
}

Json dictionary_at(const arrow::DictionaryArray& array, int64_t index, TextSeen& seen) {
  const int64_t place = array.GetValueIndex(index);
  if (place < 0 || place >= array.dictionary()->length()) throw std::runtime_error("an index is outside a dictionary");
  return value_of(*array.dictionary(), place, seen);
}

/// Returns the value as Arrow prints it, for types that JSON does not have.
Json printed(const arrow::Array& array, int64_t index) {
  const auto scalar = array.GetScalar(index);
  if (!scalar.ok()) throw std::runtime_error(scalar.status().message());
  return (*scalar)->ToString();
}

}  // namespace

Json value_of(const arrow::Array& array, int64_t index, TextSeen& seen) {
  if (array.IsNull(index)) return nullptr;
  switch (array.type_id()) {
    case arrow::Type::NA:
      return nullptr;
    case arrow::Type::BOOL:
      return number_at<arrow::BooleanArray>(array, index);
    case arrow::Type::INT8:
      return number_at<arrow::Int8Array>(array, index);
    case arrow::Type::INT16:
      return number_at<arrow::Int16Array>(array, index);
    case arrow::Type::INT32:
      return number_at<arrow::Int32Array>(array, index);
    case arrow::Type::INT64:
      return number_at<arrow::Int64Array>(array, index);
    case arrow::Type::UINT8:
      return number_at<arrow::UInt8Array>(array, index);
    case arrow::Type::UINT16:
      return number_at<arrow::UInt16Array>(array, index);
    case arrow::Type::UINT32:
      return number_at<arrow::UInt32Array>(array, index);
    case arrow::Type::UINT64:
      return number_at<arrow::UInt64Array>(array, index);
    case arrow::Type::HALF_FLOAT:
      return arrow::util::Float16::FromBits(as<arrow::HalfFloatArray>(array).Value(index)).ToDouble();
    case arrow::Type::FLOAT:
      return static_cast<double>(as<arrow::FloatArray>(array).Value(index));
    case arrow::Type::DOUBLE:
      return number_at<arrow::DoubleArray>(array, index);
    case arrow::Type::STRING:
      return text_at<arrow::StringArray>(array, index, seen);
    case arrow::Type::LARGE_STRING:
      return text_at<arrow::LargeStringArray>(array, index, seen);
    case arrow::Type::STRING_VIEW:
      return text_at<arrow::StringViewArray>(array, index, seen);
    case arrow::Type::BINARY:
      return bytes_at<arrow::BinaryArray>(array, index, seen);
    case arrow::Type::LARGE_BINARY:
      return bytes_at<arrow::LargeBinaryArray>(array, index, seen);
    case arrow::Type::BINARY_VIEW:
      return bytes_at<arrow::BinaryViewArray>(array, index, seen);
    case arrow::Type::LIST:
      return list_at<arrow::ListArray>(array, index, seen);
    case arrow::Type::LARGE_LIST:
      return list_at<arrow::LargeListArray>(array, index, seen);
    case arrow::Type::FIXED_SIZE_LIST:
      return list_at<arrow::FixedSizeListArray>(array, index, seen);
    case arrow::Type::STRUCT:
      return struct_at(as<arrow::StructArray>(array), index, seen);
    case arrow::Type::MAP:
      return map_at(as<arrow::MapArray>(array), index, seen);
    case arrow::Type::DICTIONARY:
      return dictionary_at(as<arrow::DictionaryArray>(array), index, seen);
    case arrow::Type::EXTENSION:
      return value_of(*as<arrow::ExtensionArray>(array).storage(), index, seen);
    default:
      return printed(array, index);
  }
}

}  // namespace gputrain::records
