#include "json_part.hpp"

#include <cstring>
#include <filesystem>
#include <fstream>

#include "../text/unicode.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"
#include "gputrain/core/numbers.hpp"

namespace gputrain::tokenizers {

using nlohmann::json;

namespace {

[[noreturn]] void refuse_size(const std::string& file, const std::string& bytes) {
  throw Error(ExitCode::data, {.what = "the file has " + bytes + "; the files of tokenizers have at most " +
                                       std::to_string(kMostFileBytes >> 20) + " MiB",
                               .where = file,
                               .hint = "name the tokenizer's own file, not the weights"});
}

}  // namespace

void JsonPart::refuse(const std::string& what, const std::string& hint) const {
  throw Error(ExitCode::data,
              {.what = shortened(what, 500), .where = key_.empty() ? file_ : file_ + ": " + key_, .hint = hint});
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
  std::error_code unknown_size;
  const auto size = static_cast<int64_t>(std::filesystem::file_size(file, unknown_size));
  if (!unknown_size && size > kMostFileBytes) refuse_size(file, grouped(size) + " bytes");
  std::ifstream stream(file, std::ios::binary);
  std::string text, block(size_t{1} << 16, '\0');
  while (stream.read(block.data(), std::ssize(block)) || stream.gcount() > 0) {
    text.append(block, 0, static_cast<size_t>(stream.gcount()));
    if (std::ssize(text) > kMostFileBytes) refuse_size(file, "no end");
  }
  if (!stream.is_open() || stream.bad())
    throw Error(ExitCode::data, {.what = "cannot read: " + std::string(std::strerror(errno)), .where = file});
  return text;
}

json read_json(const std::string& file) {
  const std::string text = read_file(file);
  if (is_nested_too_deep(text))
    throw Error(ExitCode::data, {.what = "the JSON is nested more than " + std::to_string(kMostJsonDepth) + " deep",
                                 .where = file,
                                 .hint = "download the file again"});
  try {
    return json::parse(text);
  } catch (const json::exception& error) {
    throw Error(ExitCode::data, {.what = "not JSON: " + shortened(reason_in(error), 500),
                                 .where = file,
                                 .hint = "download the file again; a Git LFS pointer is not the file"});
  }
}

std::string shortened(std::string_view text, size_t most_bytes) {
  if (text.size() <= most_bytes) return std::string(text);
  return std::string(text.substr(0, code_point_before(text, most_bytes))) + "...";
}

}  // namespace gputrain::tokenizers
