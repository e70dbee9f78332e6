// Describes all keys of a job from the schemas: JSON Schema for editors, tables for people.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "gputrain/config/schema.hpp"

namespace gputrain::config {

/// Returns the JSON Schema (draft 2020-12) of a complete job file.
nlohmann::ordered_json json_schema(const Schema& schema, const std::string& title);

/// Returns all catalogs that keys of the schema pick from, each once, in declaration order.
std::vector<const AnyCatalog*> catalogs_of(const Schema& schema);

/// Returns a table of names and their help, in lines of at most `width` characters.
std::string list_text(const AnyCatalog& catalog, size_t width);

/// Returns the keys of one struct with type, default and help, in lines of at most `width` characters: as a table if
/// there is room for the help, else with the help below each key.
std::string describe_text(const Schema& schema, size_t width);

/// Does the same for one key, or for one group and its keys; empty if the name is unknown.
std::string describe_text(const Schema& schema, size_t width, std::string_view key);

/// Describes the keys with this last name, of any group or entry, and those that other programs call so; or options of
/// entries by their full name: "lr_scheduler.warmup", "model.config.layers[].channels". Empty: there is none.
std::string describe_name(const Schema& root, std::string_view name, size_t width);

/// Returns every key of the schema and of the entries that its keys pick, as sections of a Markdown page.
std::string keys_page(const Schema& schema);

/// Returns the full names of all keys and groups of the job, without those of a list's elements.
std::vector<std::string> key_names(const Schema& schema);

/// Returns the options of one entry. Throws Error(usage) with the nearest names if there is no such entry.
std::string describe_text(const AnyCatalog& catalog, std::string_view name, size_t width);

/// Mistakes in the declarations themselves: a default outside its limits, an option with the name of a key beside it, a
/// foreign name that is our own key. Empty if there are none; for tests.
std::vector<std::string> faults_of(const Schema& schema);

}  // namespace gputrain::config
