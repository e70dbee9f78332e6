#include "post_processor.hpp"

namespace gputrain::tokenizers {
namespace {

void append_special(const JsonPart& part, const std::string& name, std::vector<int64_t>& tokens) {
  const JsonPart specials = part.at("special_tokens");
  for (const JsonPart& id : specials.at(name.c_str()).at("ids").list()) tokens.push_back(id.whole_number());
}

Frame read_template(const JsonPart& part) {
  Frame frame;
  bool is_behind = false;
  for (const JsonPart& item : part.at("single").list()) {
    if (item.has("SpecialToken")) {
      append_special(part, item.at("SpecialToken").at("id").text(), is_behind ? frame.behind : frame.before);
      continue;
    }
    if (is_behind || item.at("Sequence").at("id").text() != "A") item.refuse("expected the text once, as sequence A");
    is_behind = true;
  }
  return frame;
}

int64_t token_of(const JsonPart& pair) {
  const auto parts = pair.list();
  if (parts.size() != 2) pair.refuse("expected a token and its number");
  return parts[1].whole_number();
}

}  // namespace

Frame read_post_processor(const JsonPart& part) {
  const std::string type = part.type();
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") return read_template(part);
  if (type == "BertProcessing" || type == "RobertaProcessing")
    return {.before = {token_of(part.at("cls"))}, .behind = {token_of(part.at("sep"))}};
  if (type == "Sequence") {
    Frame all;
    for (const JsonPart& step : part.at("processors").list()) {
      Frame frame = read_post_processor(step);
      all.before.insert(all.before.begin(), frame.before.begin(), frame.before.end());
      all.behind.insert(all.behind.end(), frame.behind.begin(), frame.behind.end());
    }
    return all;
  }
  part.refuse("the post_processor '" + type + "' is not supported");
}

}  // namespace gputrain::tokenizers
