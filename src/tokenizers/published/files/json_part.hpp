// A value inside a JSON file, which knows its place there for messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace gputrain::tokenizers {

/// Refers to the document, which must outlive it. Every mistake is an Error(data) that names file and key.
class JsonPart {
 public:
  JsonPart(const nlohmann::json& value, std::string file, std::string key = {})
      : value_(&value), file_(std::move(file)), key_(std::move(key)) {}

  const nlohmann::json& value() const { return *value_; }
  const std::string& file() const { return file_; }
  [[noreturn]] void refuse(const std::string& what, const std::string& hint = {}) const;

  /// Returns whether there is such a key. False also if it is null, as in the files of the tokenizers package.
  bool has(const char* key) const;
  JsonPart at(const char* key) const;
  std::vector<JsonPart> list() const;

  std::string text() const;
  int64_t whole_number() const;
  double number() const;
  bool flag(const char* key, bool fallback) const;
  std::string text(const char* key, const std::string& fallback) const;
  /// Returns the value of "type", which says what kind of component it is.
  std::string type() const { return at("type").text(); }

 private:
  JsonPart child(const nlohmann::json& value, const std::string& key) const;

  const nlohmann::json* value_;
  std::string file_;
  std::string key_;
};

/// Limit of a file. No published tokenizer has half of it; a larger file is something else, and would fill the memory.
inline constexpr int64_t kMostFileBytes = int64_t{256} << 20;

/// Reads and parses a file. Throws Error(data), also if it is larger than kMostFileBytes or nested very deep.
nlohmann::json read_json(const std::string& file);
std::string read_file(const std::string& file);

/// Returns the begin of a text, for messages, with "..." if something is left out.
std::string shortened(std::string_view text, size_t most_bytes = 200);

}  // namespace gputrain::tokenizers
