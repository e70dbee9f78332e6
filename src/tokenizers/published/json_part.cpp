#include "json_part.hpp"

#include <cstring>
#include <fstream>
#include <iterator>

#include "gputrain/core/error.hpp"

namespace gputrain::tokenizers {

using nlohmann::json;

void JsonPart::refuse(const std::string& what, const std::string& hint) const {
  throw Error(ExitCode::data, {.what = what, .where = key_.empty() ? file_ : file_ + ": " + key_, .hint = hint});
}

JsonPart JsonPart::child(const json& value, const std::string& key) const {
  const bool is_index = key.starts_with('[');
  return {value, file_, key_.empty() || is_index ? key_ + key : key_ + "." + key};
}

bool JsonPart::has(const char* key) const {
  if (!value_->is_object()) refuse("expected an object");
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

JsonPart JsonPart::at(const char* key) const {
  if (!has(key)) refuse("'" + std::string(key) + "' is missing");
  return child(value_->at(key), key);
}

std::vector<JsonPart> JsonPart::list() const {
  if (!value_->is_array()) refuse("expected a list");
  std::vector<JsonPart> parts;
  for (const json& value : *value_) parts.push_back(child(value, "[" + std::to_string(parts.size()) + "]"));
  return parts;
}

std::string JsonPart::text() const {
  if (!value_->is_string()) refuse("expected a string");
  return value_->get<std::string>();
}

int64_t JsonPart::whole_number() const {
  const bool fits =
      value_->is_number_integer() && (!value_->is_number_unsigned() || value_->get<uint64_t>() >> 63 == 0);
  if (!fits) refuse("expected a whole number");
  return value_->get<int64_t>();
}

double JsonPart::number() const {
  if (!value_->is_number()) refuse("expected a number");
  return value_->get<double>();
}

bool JsonPart::flag(const char* key, bool fallback) const {
  if (!has(key)) return fallback;
  const JsonPart part = at(key);
  if (!part.value().is_boolean()) part.refuse("expected true or false");
  return part.value().get<bool>();
}

std::string JsonPart::text(const char* key, const std::string& fallback) const {
  return has(key) ? at(key).text() : fallback;
}

std::string read_file(const std::string& file) {
  std::ifstream stream(file, std::ios::binary);
  std::string text{std::istreambuf_iterator<char>(stream), {}};
  if (!stream.is_open() || stream.bad())
    throw Error(ExitCode::data, {.what = "cannot read: " + std::string(std::strerror(errno)), .where = file});
  return text;
}

json read_json(const std::string& file) {
  try {
    return json::parse(read_file(file));
  } catch (const json::exception& error) {
    throw Error(ExitCode::data, {.what = "not JSON: " + std::string(error.what()),
                                 .where = file,
                                 .hint = "download the file again; a Git LFS pointer is not the file"});
  }
}

}  // namespace gputrain::tokenizers
