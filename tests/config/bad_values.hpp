// Generates mistakes from the table of keys: for every key of a schema a wrong type, an out-of-range value, a
// misspelling and, for paths, an address, each as --set on a valid job. Checks that load() rejects each one with the
// right message.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "gputrain/config/load.hpp"
#include "gputrain/config/value_type.hpp"

namespace gputrain::config {

struct BadValue {
  std::string kind;              // "wrong type", "out of range", "misspelling", "address"
  std::string place;             // the dotted key that the error must name
  std::vector<std::string> set;  // what to add to a valid job
  std::string mention;           // what the error's text or hint must contain
};

class BadValues {
 public:
  static std::vector<BadValue> of(const Schema& schema) {
    BadValues generator;
    generator.add_group(schema, {}, {});
    return std::move(generator.found_);
  }

 private:
  using Kind = ValueType::Kind;
  using Context = std::vector<std::string>;  // --set arguments that select the entry which has the key

  void add_group(const Schema& schema, const std::string& group, const Context& context) {
    for (const Key& key : schema.keys()) {
      const std::string dotted = group + key.name();
      add("misspelling", dotted + key.name().back(), "3", context, "'" + key.name());
      const Schema::ChoiceKey* choice = schema.choice_of(key);
      if (choice != nullptr) {
        add_choice(*choice, key, group, context);
      } else {
        add_value(key, key.type(), dotted, context, "", "");
      }
    }
    if (const Key* pattern = schema.pattern()) {
      add_value(*pattern, *pattern->type().inner, group + "val/loss", context, "", "");
    }
  }

  void add_choice(const Schema::ChoiceKey& choice, const Key& key, const std::string& group, const Context& context) {
    const std::string dotted = group + key.name();
    add("wrong type", dotted, "[1, 2]", context, dotted);
    add("out of range", dotted, "no_such_" + choice.catalog->kind(), context, choice.catalog->names().front());
    for (const CatalogEntry& entry : choice.catalog->entries()) {
      Context picked = context;
      picked.push_back(dotted + "=" + entry.name);
      add_group(*entry.schema, group + (choice.under.empty() ? "" : choice.under + "."), picked);
    }
  }

  /// Mistakes in a value of `type`; `before` and `after` enclose it, such as [ and ] for a list.
  void add_value(const Key& key, const ValueType& type, const std::string& dotted, const Context& context,
                 const std::string& before, const std::string& after) {
    const auto wrong = [&](const std::string& value) {
      add("wrong type", dotted, before + value + after, context, dotted);
    };
    switch (type.kind) {
      case Kind::boolean:
        wrong("yes"), wrong("1");
        break;
      case Kind::integer:
        wrong("many"), wrong("1.5"), wrong("'1'"), wrong("true"), wrong("99999999999999999999");
        break;
      case Kind::number:
        wrong("many"), wrong("'1'"), wrong(".nan"), wrong(".inf"), wrong("1e999");
        break;
      case Kind::string:
        wrong("[1, 2]"), wrong("{a: 1}");
        if (key.is_path()) add("address", dotted, before + "s3://bucket/x" + after, context, "is an address");
        break;
      case Kind::length:
        wrong("5 epochs"), wrong("-1"), wrong("true");
        break;
      case Kind::duration:
        wrong("soon"), wrong("-1"), wrong("30 minutes");
        break;
      case Kind::list:
        wrong("{a: 1}");
        // One text stands for a list of it, or of the group that it is the only required key of.
        if (type.takes_one && type.inner->kind == Kind::group) return;
        if (!type.takes_one || type.inner->kind != Kind::string) wrong("one");
        add_value(key, *type.inner, dotted, context, "[", "]");
        break;
      case Kind::map:
        wrong("[1, 2]"), wrong("one");
        break;
      case Kind::automatic:
      case Kind::optional:
        return add_value(key, *type.inner, dotted, context, before, after);
      case Kind::group:
        wrong("[1, 2]"), wrong("3");
        if (before.empty()) add_group(type.schema(), dotted + ".", context);
        return;
      case Kind::choice:
        return;
    }
    add_out_of_range(key, type, dotted, context, before, after);
  }

  void add_out_of_range(const Key& key, const ValueType& type, const std::string& dotted, const Context& context,
                        const std::string& before, const std::string& after) {
    const Key::Limits& limits = key.limits();
    const auto out = [&](const std::string& value) {
      add("out of range", dotted, before + value + after, context, dotted);
    };
    const bool is_number = type.kind == Kind::integer || type.kind == Kind::number;
    if (is_number && limits.low) out(number(limits.low_is_open ? *limits.low : *limits.low - 1));
    if (is_number && limits.high) out(number(limits.high_is_open ? *limits.high : *limits.high + 1));
    if (type.kind == Kind::string && !key.allowed().empty()) out("no_such_word");
    if (type.kind == Kind::list && limits.fewest.value_or(0) > 0) out("[]");
  }

  static std::string number(double value) { return std::to_string(static_cast<int64_t>(value)); }

  void add(std::string kind, std::string place, const std::string& value, Context context, std::string mention) {
    context.push_back(place + "=" + value);
    found_.push_back({std::move(kind), std::move(place), std::move(context), std::move(mention)});
  }

  std::vector<BadValue> found_;
};

/// True with a message if load() rejects the mistake, names the right key and gives the right hint.
inline ::testing::AssertionResult is_refused(const Schema& schema, Request request, const BadValue& bad) {
  request.set.insert(request.set.end(), bad.set.begin(), bad.set.end());
  try {
    load(schema, request);
  } catch (const SpecError& error) {
    if (error.code() != ExitCode::usage) return ::testing::AssertionFailure() << "wrong exit code";
    for (const Problem& problem : error.problems()) {
      const bool is_there = problem.location.to_string() == "--set " + bad.place;
      const bool says_so = (problem.what + " " + problem.hint).find(bad.mention) != std::string::npos;
      if (is_there && says_so) return ::testing::AssertionSuccess();
    }
    return ::testing::AssertionFailure() << "no problem at --set " << bad.place << " that mentions " << bad.mention
                                         << ":\n"
                                         << error.what();
  }
  return ::testing::AssertionFailure() << bad.kind << " accepted: --set " << bad.set.back();
}

}  // namespace gputrain::config
