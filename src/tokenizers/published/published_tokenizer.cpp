#include <algorithm>
#include <iterator>
#include <mutex>
#include <unordered_map>

#include "../token_buffer.hpp"
#include "../utf8.hpp"
#include "gputrain/core/error.hpp"
#include "parts.hpp"
#include "subwords/workspace.hpp"

namespace gputrain::tokenizers {
namespace {

/// Selects the tokens that are looked for before or after normalisation.
AddedTokens selected(const std::vector<AddedToken>& all, bool is_normalized) {
  std::vector<AddedToken> tokens;
  std::ranges::copy_if(all, std::back_inserter(tokens),
                       [&](const AddedToken& token) { return token.is_found && token.is_normalized == is_normalized; });
  return AddedTokens(std::move(tokens));
}

/// Limit of all texts that are looked for, because the table for finding them has about 50 bytes for each byte of them.
constexpr size_t kMostAddedBytes = size_t{8} << 20;

PublishedTokenizer::Parts with_shown_texts(PublishedTokenizer::Parts parts) {
  Workspace workspace;
  size_t bytes = 0;
  for (AddedToken& token : parts.added) {
    if (token.shown.empty()) {
      TracedText shown(token.text, 0, false);
      if (token.is_normalized && parts.normalizer) parts.normalizer(shown, workspace);
      token.shown = std::move(shown.text);
    }
    bytes += token.shown.size();
    if (bytes > kMostAddedBytes)
      throw Error(ExitCode::data,
                  {.what = "the added tokens have more than " + std::to_string(kMostAddedBytes >> 20) + " MiB of text",
                   .where = parts.model->vocabulary().where(),
                   .hint = "take out those that no text has"});
  }
  return parts;
}

}  // namespace

/// The parts, prepared for encoding.
class PublishedTokenizer::Encoder {
 public:
  explicit Encoder(Parts parts)
      : parts_(with_shown_texts(std::move(parts))),
        raw_tokens_(selected(parts_.added, false)),
        normalized_tokens_(selected(parts_.added, true)) {
    PreTokenizers& cuts = parts_.pre_tokenizers;
    if (cuts.ends_with_alphabet && !parts_.model->takes_bytes()) cuts.steps.push_back(write_in_alphabet);
    if (parts_.model->can_cut_before_spaces()) cuts.steps.push_back(cut_before_spaces);  // small words are quick
    size_ = parts_.model->vocabulary().size();
    for (const AddedToken& token : parts_.added) {
      size_ = std::max(size_, int64_t{token.token} + 1);
      added_[token.token] = &token;
      numbers_.emplace(token.text, token.token);
    }
  }

  const Parts& parts() const { return parts_; }
  int64_t vocabulary_size() const { return size_; }

  void encode(std::string_view text, const std::string& name, const Take& take, std::vector<ByteRange>* ranges) const {
    const Loan workspace(*this);
    TokenBuffer buffer(take, ranges);
    workspace->is_traced = buffer.is_traced();
    bool is_first = true;
    raw_tokens_.cut(
        text,
        [&](std::string_view section, size_t offset) {
          TracedText changed;
          if (parts_.normalizer || buffer.is_traced()) changed = TracedText(section, offset, buffer.is_traced());
          if (parts_.normalizer) parts_.normalizer(changed, *workspace);
          if (parts_.normalizer) section = changed.text;
          normalized_tokens_.cut(
              section,
              [&](std::string_view words, size_t begin) {
                const ByteRange* origins = buffer.is_traced() ? changed.trace() + begin : nullptr;
                encode_words({words, is_first, origins}, *workspace, buffer, name);
                is_first = false;
              },
              [&](int32_t token, size_t begin, size_t end) {
                buffer.push(token, changed.origin(begin, end));
                is_first = false;
              });
          is_first = false;
        },
        [&](int32_t token, size_t begin, size_t end) {
          buffer.push(token, {begin, end});
          is_first = false;
        });
    buffer.flush();
  }

  std::string decode(std::span<const int64_t> tokens) const {
    std::vector<std::string> texts;
    texts.reserve(tokens.size());
    for (const int64_t token : tokens) {
      const std::string* text = shown(token);
      texts.emplace_back(text == nullptr ? "\uFFFD" : *text);
    }
    if (parts_.decoder) parts_.decoder(texts);
    std::string all;
    for (size_t i = 0; i < texts.size(); ++i) {
      if (i > 0 && !parts_.decoder) all += ' ';
      all += texts[i];
    }
    return all;
  }

  const AddedToken* added(int64_t token) const {
    const auto found = added_.find(token);
    return found == added_.end() ? nullptr : found->second;
  }

  std::optional<int64_t> find(std::string_view spelling) const {
    const auto found = numbers_.find(std::string(spelling));
    if (found != numbers_.end()) return found->second;
    const int32_t token = parts_.model->vocabulary().find(spelling);
    return token < 0 ? std::nullopt : std::optional<int64_t>(token);
  }

 private:
  /// A workspace that no other call uses, given back at the end.
  class Loan {
   public:
    explicit Loan(const Encoder& encoder) : encoder_(encoder) {
      const std::lock_guard lock(encoder_.mutex_);
      if (encoder_.idle_.empty()) {
        encoder_.idle_.reserve(++encoder_.workspaces_);  // so that giving back cannot fail
        workspace_ = std::make_unique<Workspace>();
      } else {
        workspace_ = std::move(encoder_.idle_.back());
        encoder_.idle_.pop_back();
      }
    }
    ~Loan() {
      const std::lock_guard lock(encoder_.mutex_);
      encoder_.idle_.push_back(std::move(workspace_));
    }
    Loan(const Loan&) = delete;
    Loan& operator=(const Loan&) = delete;
    Workspace& operator*() const { return *workspace_; }
    Workspace* operator->() const { return workspace_.get(); }

   private:
    const Encoder& encoder_;
    std::unique_ptr<Workspace> workspace_;
  };

  const std::string* shown(int64_t token) const {
    const AddedToken* added_token = added(token);
    return added_token != nullptr ? &added_token->shown : parts_.model->vocabulary().text(token);
  }

  void encode_words(Piece piece, Workspace& workspace, TokenBuffer& buffer, const std::string& name) const {
    parts_.pre_tokenizers.cut(piece, workspace, [&](Piece word) { encode_word(word, workspace, buffer, name); });
  }

  void encode_word(Piece piece, Workspace& workspace, TokenBuffer& buffer, const std::string& name) const {
    const std::string_view word = piece.text;
    WordCache::Place* place = nullptr;
    if (word.size() <= WordCache::kLongestWord && !workspace.is_traced) {
      place = &workspace.cache.place(word);
      if (WordCache::holds(*place, word)) {
        for (const int32_t token : place->view()) buffer.push(token);
        return;
      }
    }
    workspace.shrink(0);
    if (!parts_.model->encode(word, workspace))
      throw Error(ExitCode::data, {.what = "the tokenizer has no token for a part of '" + shortened(word, 40) +
                                           "', and none for the unknown",
                                   .where = name,
                                   .hint = "its file is " + parts_.model->vocabulary().where()});
    if (place != nullptr) WordCache::put(*place, word, workspace.tokens);
    for (size_t i = 0; i < workspace.tokens.size(); ++i) {
      const ByteRange part = workspace.is_traced ? workspace.ranges[i] : ByteRange();
      buffer.push(workspace.tokens[i], origin_of(piece.origins, part.begin, part.end));
    }
  }

  Parts parts_;
  AddedTokens raw_tokens_, normalized_tokens_;
  std::unordered_map<int64_t, const AddedToken*> added_;  // into parts_
  std::unordered_map<std::string, int64_t> numbers_;      // numbers of added tokens
  int64_t size_ = 0;
  mutable std::mutex mutex_;
  mutable size_t workspaces_ = 0;  // the most threads that ever encoded at once
  mutable std::vector<std::unique_ptr<Workspace>> idle_;
};

PublishedTokenizer::PublishedTokenizer(Parts parts) : encoder_(std::make_unique<Encoder>(std::move(parts))) {}
PublishedTokenizer::~PublishedTokenizer() = default;

int64_t PublishedTokenizer::vocabulary_size() const { return encoder_->vocabulary_size(); }

void PublishedTokenizer::tokenize(std::string_view text, const std::string& name, const Take& take,
                                  std::vector<ByteRange>* ranges) const {
  check_utf8(text, name);
  encoder_->encode(text, name, take, ranges);
}

Frame PublishedTokenizer::frame(bool has_two_texts) const {
  const Frames& frames = encoder_->parts().frames;
  return has_two_texts ? frames.two : frames.one;
}

std::optional<int64_t> PublishedTokenizer::end_token() const {
  const std::string& spelling = encoder_->parts().end_token;
  return spelling.empty() ? std::nullopt : find(spelling);
}

std::optional<int64_t> PublishedTokenizer::mask_token() const {
  for (const char* spelling : {"[MASK]", "<mask>"}) {
    const auto token = find(spelling);
    if (token && is_special(*token)) return token;
  }
  return std::nullopt;
}

std::string PublishedTokenizer::decode(std::span<const int64_t> tokens) const { return encoder_->decode(tokens); }

std::optional<int64_t> PublishedTokenizer::find(std::string_view spelling) const { return encoder_->find(spelling); }

bool PublishedTokenizer::is_special(int64_t token) const {
  const AddedToken* added = encoder_->added(token);
  return added != nullptr && added->is_special;
}

}  // namespace gputrain::tokenizers
