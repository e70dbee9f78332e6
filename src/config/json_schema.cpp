#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "gputrain/config/reference.hpp"
#include "gputrain/config/value_type.hpp"
#include "key_index.hpp"
#include "yaml/scalar.hpp"
#include "yaml/write.hpp"

namespace gputrain::config {
namespace {

using Json = nlohmann::ordered_json;
using Kind = ValueType::Kind;

constexpr const char* kCount = R"([0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?)";
constexpr const char* kAddress = "^[A-Za-z][A-Za-z0-9+.-]*://";  // no path looks like this
constexpr const char* kMetricPattern = "^[^/]+/.+$";

Json reference() { return {{"$ref", "#/$defs/reference"}}; }

/// Returns a canonical value as JSON, for "default".
Json json_of(const Node& node) {
  switch (node.kind) {
    case Node::Kind::null:
      return nullptr;
    case Node::Kind::scalar: {
      if (node.quoted) return node.text;
      const Plain plain = classify(node.text);
      if (plain == Plain::boolean) return node.text == "true";
      if (plain == Plain::integer) return *parse_integer(node.text).value;
      if (plain == Plain::number) return *parse_number(node.text).value;
      return node.text;
    }
    case Node::Kind::list: {
      Json list = Json::array();
      for (const Node& part : node.parts) list.push_back(json_of(part));
      return list;
    }
    case Node::Kind::map: {
      Json map = Json::object();
      for (const Node& part : node.parts) map[part.key] = json_of(part);
      return map;
    }
  }
  return nullptr;
}

/// Writes a whole limit as 1 instead of 1.0.
Json number_json(double value) {
  const bool is_whole = std::trunc(value) == value && std::fabs(value) < 1e15;
  return is_whole ? Json(static_cast<int64_t>(value)) : Json(value);
}

Json limited(Json schema, const Key::Limits& limits) {
  if (limits.low) schema[limits.low_is_open ? "exclusiveMinimum" : "minimum"] = number_json(*limits.low);
  if (limits.high) schema[limits.high_is_open ? "exclusiveMaximum" : "maximum"] = number_json(*limits.high);
  return schema;
}

std::string time_pattern() {
  const std::string count = kCount;
  std::string units;
  for (const char letter : {'d', 'h', 'm', 's'}) units += "(" + count + letter + ")?";
  return "(?=.)" + units;
}

std::string length_pattern(const Key& key) {
  const std::vector<Length::Unit>& allowed = key.allowed_units();
  const auto may = [&](Length::Unit unit) {
    return allowed.empty() || std::find(allowed.begin(), allowed.end(), unit) != allowed.end();
  };
  std::vector<std::string> forms;
  const std::string count = kCount;
  if (may(Length::Unit::steps)) forms.push_back(count);
  if (may(Length::Unit::epochs)) forms.push_back(count + "ep");
  if (may(Length::Unit::percent)) forms.push_back(count + "%");
  if (may(Length::Unit::tokens)) forms.push_back(count + "[kMBT]?tok");
  if (may(Length::Unit::seconds)) forms.push_back(time_pattern());
  std::string pattern;
  for (const std::string& form : forms) pattern += (pattern.empty() ? "" : "|") + form;
  return "^(" + pattern + ")$";
}

/// Matches if the entry is picked, by name or by default.
Json condition(const std::string& key, const std::string& entry, bool is_default) {
  const Json named{{"properties", {{key, {{"const", entry}}}}}, {"required", {key}}};
  if (!is_default) return named;
  return {{"anyOf", {named, {{"not", {{"required", {key}}}}}}}};
}

Json name_schema(const Schema::ChoiceKey& choice, const Key& key, const std::string& fallback) {
  std::string help = key.help();
  for (const std::string& name : choice.catalog->names()) help += "\n" + name + ": " + choice.catalog->find(name)->help;
  std::vector<Json> forms{{{"enum", choice.catalog->names()}}, reference()};
  if (fallback.empty() && !key.is_required()) forms.push_back(Json{{"type", "null"}});
  Json schema{{"description", help}, {"anyOf", forms}};
  if (!fallback.empty()) schema["default"] = fallback;
  return schema;
}

class SchemaWriter {
 public:
  /// Returns the forms of a value; more than one become "anyOf".
  std::vector<Json> forms_of(const ValueType& type, const Key& key) {
    switch (type.kind) {
      case Kind::boolean:
        return {{{"type", "boolean"}}, reference()};
      case Kind::integer:
        return {limited({{"type", "integer"}}, key.limits()), reference()};
      case Kind::number:
        return {limited({{"type", "number"}}, key.limits()), reference()};
      case Kind::string:
        if (!key.allowed().empty()) return {{{"enum", key.allowed()}}, reference()};
        return {key.is_path() ? Json{{"type", {"string", "number", "boolean"}}, {"not", {{"pattern", kAddress}}}}
                              : Json{{"type", {"string", "number", "boolean"}}}};
      case Kind::length:
        return {limited({{"type", "number"}, {"minimum", 0}}, key.limits()),
                {{"type", "string"}, {"pattern", length_pattern(key)}},
                reference()};
      case Kind::duration:
        return {limited({{"type", "number"}, {"minimum", 0}}, key.limits()),
                {{"type", "string"}, {"pattern", "^(" + time_pattern() + ")$"}},
                reference()};
      case Kind::automatic: {
        std::vector<Json> forms = forms_of(*type.inner, key);
        forms.insert(forms.begin(), Json{{"const", "auto"}});
        return forms;
      }
      case Kind::optional: {
        std::vector<Json> forms = forms_of(*type.inner, key);
        forms.push_back(Json{{"type", "null"}});
        return forms;
      }
      case Kind::group:
        return {object_schema(type.schema(), false)};
      case Kind::choice:
        return {};
      default:
        break;
    }
    std::vector<Json> parts = forms_of(*type.inner, key);
    const Json inner = parts.size() == 1 ? parts[0] : Json{{"anyOf", parts}};
    if (type.kind == Kind::map) return {{{"type", "object"}, {"additionalProperties", inner}}};
    Json list{{"type", "array"}, {"items", inner}};
    if (key.limits().fewest) list["minItems"] = *key.limits().fewest;
    if (key.limits().most) list["maxItems"] = *key.limits().most;
    if (!type.takes_one) return {list};
    if (key_of_text(*type.inner) != nullptr) parts.push_back({{"type", {"string", "number", "boolean"}}});
    parts.push_back(std::move(list));
    return parts;
  }

  Json value_schema(const Key& key, const void* defaults) {
    const std::vector<Json> forms = forms_of(key.type(), key);
    Json schema = Json::object();
    schema["description"] = key.help() + (key.unit().empty() ? "" : " (" + key.unit() + ")");
    if (forms.size() == 1) {
      for (const auto& [name, value] : forms[0].items()) {
        if (name != "description") schema[name] = value;
      }
    } else {
      schema["anyOf"] = forms;
    }
    if (!key.is_required() && key.type().kind != Kind::group) {
      schema["default"] = json_of(node_of(key.type(), key.locate(defaults)));
    }
    return schema;
  }

  /// Adds the keys of one struct to an object's "properties" and "required".
  void add_properties(Json& object, const Schema& schema, const void* defaults) {
    for (const Key& key : schema.keys()) {
      const Schema::ChoiceKey* choice = schema.choice_of(key);
      object["properties"][key.name()] =
          choice == nullptr ? value_schema(key, defaults)
                            : name_schema(*choice, key, static_cast<const Choice*>(key.locate(defaults))->name);
      if (key.is_required()) object["required"].push_back(key.name());
    }
  }

  /// Rules for a picked entry whose options are beside the key: allows its options and no other entry's.
  Json options_beside(const Schema& schema, const CatalogEntry& entry) {
    Json then{{"properties", Json::object()}};
    add_properties(then, *entry.schema, entry.schema->create().get());
    Json names = Json::array();
    for (const Key& key : schema.keys()) names.push_back(key.name());
    for (const Key& key : entry.schema->keys()) names.push_back(key.name());
    then["propertyNames"] = {{"enum", names}};
    return then;
  }

  Json options_under(const std::string& under, const CatalogEntry& entry) {
    const Json options = object_schema(*entry.schema, false);
    Json then{{"properties", {{under, options}}}};
    if (options.contains("required")) then["required"] = {under};
    return then;
  }

  void add_choice(Json& object, const Schema& schema, const Schema::ChoiceKey& choice, const void* defaults) {
    const Key& key = schema.keys()[choice.key];
    const std::string& fallback = static_cast<const Choice*>(key.locate(defaults))->name;
    if (!choice.under.empty()) {
      object["properties"][choice.under] = {{"description", "options of the " + choice.catalog->kind()},
                                            {"type", {"object", "null"}}};
    }
    for (const CatalogEntry& entry : choice.catalog->entries()) {
      if (choice.under.empty()) {
        for (const Key& option : entry.schema->keys()) object["properties"].emplace(option.name(), true);
      }
      object["allOf"].push_back(
          {{"if", condition(key.name(), entry.name, entry.name == fallback)},
           {"then", choice.under.empty() ? options_beside(schema, entry) : options_under(choice.under, entry)}});
    }
  }

  Json object_schema(const Schema& schema, bool is_root) {
    if (std::find(open_.begin(), open_.end(), &schema) != open_.end()) return {{"type", "object"}};  // recursive
    open_.push_back(&schema);
    Json object{{"type", "object"}};
    if (!schema.summary().empty()) object["description"] = schema.summary();
    object["additionalProperties"] = false;
    object["properties"] = Json::object();
    if (is_root) {
      object["properties"]["include"] = {{"description", "files whose values this one builds on"},
                                         {"type", {"string", "array", "null"}},
                                         {"items", {{"type", "string"}}}};
      object["properties"]["vars"] = {{"description", "values for ${name}"}, {"type", {"object", "null"}}};
    }
    const std::shared_ptr<void> defaults = schema.create();
    add_properties(object, schema, defaults.get());
    if (const Key* pattern = schema.pattern()) {
      const std::vector<Json> forms = forms_of(*pattern->type().inner, *pattern);
      object["patternProperties"][kMetricPattern] = forms.size() == 1 ? forms[0] : Json{{"anyOf", forms}};
    }
    for (const Schema::ChoiceKey& choice : schema.choices()) add_choice(object, schema, choice, defaults.get());
    if (!is_root && !object.contains("required")) object["type"] = {"object", "null"};  // an empty `train:`
    open_.pop_back();
    return object;
  }

 private:
  std::vector<const Schema*> open_;
};

}  // namespace

nlohmann::ordered_json json_schema(const Schema& schema, const std::string& title) {
  Json root{
      {"$schema", "https://json-schema.org/draft/2020-12/schema"},
      {"$comment",
       "Describes a complete job; a file that includes others may leave required keys to them. The tag !replace before "
       "a group drops what they say of it: editors take it with \"yaml.customTags\": [\"!replace mapping\"]."},
      {"title", title}};
  root.update(SchemaWriter().object_schema(schema, true));
  root["$defs"]["reference"] = {
      {"description", "replaced by a value when the job is read"}, {"type", "string"}, {"pattern", R"(\$\{.+\})"}};
  return root;
}

}  // namespace gputrain::config
