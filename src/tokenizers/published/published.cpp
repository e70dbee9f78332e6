#include "gputrain/tokenizers/published.hpp"

#include "gputrain/core/error.hpp"
#include "tokenizer_json.hpp"

namespace gputrain::tokenizers {

namespace fs = std::filesystem;

std::shared_ptr<const PublishedTokenizer> read_published(const fs::path& folder_or_file) {
  const fs::path file = fs::is_directory(folder_or_file) ? folder_or_file / "tokenizer.json" : folder_or_file;
  const nlohmann::json document = read_json(file.string());
  return std::make_shared<PublishedTokenizer>(read_tokenizer_json({document, file.string()}));
}

}  // namespace gputrain::tokenizers
