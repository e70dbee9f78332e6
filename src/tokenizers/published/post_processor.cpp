#include "post_processor.hpp"

#include <string_view>
#include <utility>

namespace gputrain::tokenizers {
namespace {

void append_special(const JsonPart& part, const std::string& name, std::vector<int64_t>& tokens) {
  const JsonPart specials = part.at("special_tokens");
  for (const JsonPart& id : specials.at(name.c_str()).at("ids").list()) tokens.push_back(id.whole_number());
}

int64_t token_of(const JsonPart& pair) {
  const auto parts = pair.list();
  if (parts.size() != 2) pair.refuse("expected a token and its number");
  return parts[1].whole_number();
}

/// Reads the items of a template: special tokens, and the texts A, B in this order.
Frame read_items(const JsonPart& part, const char* key, std::string_view texts) {
  Frame frame;
  size_t text = 0;  // the next one
  for (const JsonPart& item : part.at(key).list()) {
    if (item.has("SpecialToken")) {
      auto& place = text == 0 ? frame.before : text == texts.size() ? frame.behind : frame.between;
      append_special(part, item.at("SpecialToken").at("id").text(), place);
      continue;
    }
    const JsonPart sequence = item.at("Sequence");
    if (text == texts.size() || sequence.at("id").text() != texts.substr(text, 1))
      item.refuse("expected each text once, in order");
    if (++text == 2) frame.second_type = sequence.at("type_id").whole_number();
  }
  return frame;
}

Frames read_template(const JsonPart& part) {
  return {.one = read_items(part, "single", "A"),
          .two = part.has("pair") ? read_items(part, "pair", "AB") : Frames().two};
}

/// BERT's, or RoBERTa's, which ends the first text twice and has no token types.
Frames read_pair_of_tokens(const JsonPart& part, bool is_roberta) {
  const int64_t begin = token_of(part.at("cls")), end = token_of(part.at("sep"));
  Frame two{.before = {begin}, .between = {end}, .behind = {end}, .second_type = is_roberta ? 0 : 1};
  if (is_roberta) two.between.push_back(end);
  return {.one = {.before = {begin}, .between = {}, .behind = {end}}, .two = std::move(two)};
}

void put_around(Frame& all, const Frame& outer) {
  all.before.insert(all.before.begin(), outer.before.begin(), outer.before.end());
  all.between.insert(all.between.end(), outer.between.begin(), outer.between.end());
  all.behind.insert(all.behind.end(), outer.behind.begin(), outer.behind.end());
  all.second_type = outer.second_type;
}

}  // namespace

Frames read_post_processor(const JsonPart& part) {
  const std::string type = part.type();
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") return read_template(part);
  if (type == "BertProcessing" || type == "RobertaProcessing")
    return read_pair_of_tokens(part, type == "RobertaProcessing");
  if (type == "Sequence") {
    Frames all;
    for (const JsonPart& step : part.at("processors").list()) {
      const Frames frames = read_post_processor(step);
      put_around(all.one, frames.one);
      put_around(all.two, frames.two);
    }
    return all;
  }
  part.refuse("the post_processor '" + type + "' is not supported");
}

}  // namespace gputrain::tokenizers
