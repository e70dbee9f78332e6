// Hugging Face's RobertaModel and its heads, and the same under the names XLM-RoBERTa and CamemBERT.
#include "encoder_family.hpp"

namespace gputrain::models {
namespace {

// Reads BERT's keys; the first position of a text comes after the number of the padding token.
void read_roberta(EncoderOptions& options, const ConfigReader& reader) {
  if (reader.number("pad_token_id", 1) < 0) reader.refuse("'pad_token_id' is below 0");
  read_bert_keys(options, reader);
  const int64_t offset = static_cast<int64_t>(reader.number("pad_token_id", 1)) + 1;
  const int64_t rows = reader.size("max_position_embeddings").value_or(512);
  if (rows <= offset) reader.refuse("'max_position_embeddings' leaves no position above 'pad_token_id'");
  options.fixed.add("position_offset", offset);
  options.fixed.add("block_size", rows - offset);
}

nlohmann::json roberta_config(const EncoderSizes& sizes) {
  const bool has_activation = sizes.head != HeadKind::mlm || sizes.activation == ops::Activation::gelu;
  if (sizes.position_offset == 0 || sizes.token_types == 0 || !has_activation) return nullptr;
  nlohmann::json config = bert_keys(sizes);
  config["pad_token_id"] = sizes.position_offset - 1;
  return config;
}

EncoderKind roberta_kind(const char* name, const char* model_type, const char* architecture) {
  return {.name = name,
          .model_type = model_type,
          .architecture = architecture,
          .read = read_roberta,
          .write = roberta_config};
}

class RobertaFamily final : public EncoderFamily {
 public:
  explicit RobertaFamily(const config::NoOptions&) : EncoderFamily(roberta_kind("roberta", "roberta", "Roberta")) {}
};

class XlmRobertaFamily final : public EncoderFamily {
 public:
  explicit XlmRobertaFamily(const config::NoOptions&)
      : EncoderFamily(roberta_kind("xlm_roberta", "xlm-roberta", "XLMRoberta")) {}
};

class CamembertFamily final : public EncoderFamily {
 public:
  explicit CamembertFamily(const config::NoOptions&)
      : EncoderFamily(roberta_kind("camembert", "camembert", "Camembert")) {}
};

const config::Registered<RobertaFamily, config::NoOptions> registered_roberta{families(), "roberta", "RoBERTa"};
const config::Registered<XlmRobertaFamily, config::NoOptions> registered_xlm_roberta{families(), "xlm_roberta",
                                                                                     "XLM-RoBERTa"};
const config::Registered<CamembertFamily, config::NoOptions> registered_camembert{families(), "camembert", "CamemBERT"};

}  // namespace
}  // namespace gputrain::models
