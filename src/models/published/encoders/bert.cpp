// Hugging Face's BertModel and its heads.
#include "encoder_family.hpp"

namespace gputrain::models {
namespace {

void read_bert(EncoderOptions& options, const ConfigReader& reader) {
  read_bert_keys(options, reader);
  options.fixed.add("position_offset", int64_t{0});
  options.fixed.add("block_size", reader.size("max_position_embeddings").value_or(512));
}

nlohmann::json bert_config(const EncoderSizes& sizes) {
  return sizes.position_offset == 0 && sizes.token_types > 0 ? bert_keys(sizes) : nullptr;
}

class BertFamily final : public EncoderFamily {
 public:
  explicit BertFamily(const config::NoOptions&)
      : EncoderFamily(
            {.name = "bert", .model_type = "bert", .architecture = "Bert", .read = read_bert, .write = bert_config}) {}
};

const config::Registered<BertFamily, config::NoOptions> registered_bert{families(), "bert", "BERT"};

}  // namespace
}  // namespace gputrain::models
