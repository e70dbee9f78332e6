// What a job may say, printed from the schemas: JSON Schema for editors, tables for people.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/config/schema.hpp"

namespace gputrain::config {

/// JSON Schema (draft 2020-12) of a complete job file.
nlohmann::ordered_json json_schema(const Schema& schema, const std::string& title);

/// Every catalog that some key of the schema picks from, each once, in order of declaration.
std::vector<const AnyCatalog*> catalogs_of(const Schema& schema);

/// A table of names and what they are, in lines of at most `width`.
std::string list_text(const AnyCatalog& catalog, size_t width);

/// The keys of one struct with type, default and help, in lines of at most `width`: a table where that leaves room for
/// the help, else the help below each key.
std::string describe_text(const Schema& schema, size_t width);

/// The same of one key, or of one group and what is in it; empty when there is none of this name.
std::string describe_text(const Schema& schema, size_t width, std::string_view key);

/// Every key and group of the job, by its full name.
std::vector<std::string> key_names(const Schema& schema);

/// The options of one entry. Throws Error(usage) with the nearest names when there is no such entry.
std::string describe_text(const AnyCatalog& catalog, std::string_view name, size_t width);

/// What is wrong with the tables themselves: limits that a default breaks, an option named like a key beside it,
/// foreign names that are our own. Empty when they are sound; for tests.
std::vector<std::string> faults_of(const Schema& schema);

}  // namespace gputrain::config
