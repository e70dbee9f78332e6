// Common parts of the families of encoders.
#pragma once

#include <string>

#include "../../texts/encoder.hpp"
#include "../config_json.hpp"

namespace gputrain::models {

/// Contents of a config.json: options that the weights require, and options that a job may set otherwise.
struct EncoderOptions {
  SpecOptions fixed, defaults;
};

/// Differences of a family from the others.
struct EncoderKind {
  const char* name;          // name of the variant in a job
  const char* model_type;    // value in a config.json
  const char* architecture;  // start of the name, before ForMaskedLM and so on
  void (*read)(EncoderOptions& options, const ConfigReader& reader);
  nlohmann::json (*write)(const EncoderSizes& sizes);  // null: the family cannot
};

class EncoderFamily : public PublishedFamily {
 public:
  explicit EncoderFamily(const EncoderKind& kind) : kind_(kind) {}

  bool means(const nlohmann::json& config) const final { return is_model_type(config, kind_.model_type); }
  PublishedModel model_of(const nlohmann::json& config, const std::string& where) const final;
  bool names(const Model& model) const final;
  nlohmann::json config_of(const Model& model) const final;
  std::string parameter_of(const Model& model, const std::string& file_name) const final;
  std::string file_name_of(const Model& model, const std::string& parameter) const final;

 private:
  EncoderKind kind_;
};

/// Reads the keys of BERT and its relatives.
void read_bert_keys(EncoderOptions& options, const ConfigReader& reader);
nlohmann::json bert_keys(const EncoderSizes& sizes);

}  // namespace gputrain::models
