#include "gputrain/data/signature.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <nlohmann/json.hpp>

#include "gputrain/core/error.hpp"
#include "gputrain/core/json.hpp"

namespace gputrain::data {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kSchema = 1;
constexpr int64_t kMost = int64_t{1} << 40;  // maximum of any size or number
constexpr std::array<std::pair<at::ScalarType, const char*>, 6> kTypes{{{at::kByte, "uint8"},
                                                                        {at::kBool, "bool"},
                                                                        {at::kInt, "int32"},
                                                                        {at::kLong, "int64"},
                                                                        {at::kFloat, "float32"},
                                                                        {at::kDouble, "float64"}}};

const char* name_of(at::ScalarType type) {
  const auto found = std::ranges::find(kTypes, type, [](const auto& row) { return row.first; });
  GPUTRAIN_ASSERT(found != kTypes.end(), "a name for it");
  return found->second;
}

at::ScalarType type_named(const std::string& name) {
  const auto found = std::ranges::find(kTypes, name, [](const auto& row) { return row.second; });
  if (found == kTypes.end()) throw std::invalid_argument("unknown '" + name + "'");
  return found->first;
}

Target target_named(const std::string& name) {
  if (const auto target = Target::named(name)) return *target;
  throw std::invalid_argument("unknown '" + name + "'; a plug-in with its task may know it");
}

ordered_json described(const Field& field) {
  ordered_json told{{"name", field.name}, {"type", name_of(field.type)}, {"sizes", field.sizes}};
  if (field.ragged) told["ragged"] = true;
  if (field.target) told["target"] = true;
  return told;
}

/// Returns a whole number from `least` on, small enough to compute with.
int64_t number_in(const json& told, int64_t least) {
  if (!told.is_number_integer() || told < least || told > kMost)
    throw std::invalid_argument("no number of " + std::to_string(least) + " or more: " + told.dump());
  return told.get<int64_t>();
}

std::vector<int64_t> sizes_from(const json& told) {
  std::vector<int64_t> sizes;
  int64_t all = 1;
  for (const json& size : told) {
    sizes.push_back(number_in(size, 1));
    if (sizes.back() > kMost / all) throw std::invalid_argument("sizes too large: " + told.dump());
    all *= sizes.back();
  }
  return sizes;
}

Normalization normalization_from(const json& told, int64_t channels) {
  Normalization normalization{.mean = told.at("mean"), .std = told.at("std")};
  const bool is_whole = std::ssize(normalization.mean) == channels && std::ssize(normalization.std) == channels;
  if (!is_whole || std::ranges::any_of(normalization.std, [](double one) { return !(one > 0); }))
    throw std::invalid_argument("no mean and std of " + std::to_string(channels) + " channels");
  return normalization;
}

Field field_from(const json& told) {
  Field field{.name = told.at("name"),
              .type = type_named(told.at("type")),
              .sizes = sizes_from(told.at("sizes")),
              .ragged = told.value("ragged", false),
              .target = told.value("target", false)};
  if (field.sizes.empty() && (field.ragged || field.name == kTokens))
    throw std::invalid_argument("'" + field.name + "' has no size");
  return field;
}

class NoSamples final : public Dataset {
 public:
  explicit NoSamples(Signature known) : known_(std::move(known)) {}

  int64_t size() const override { return 0; }
  const SampleLayout& layout() const override { return known_.layout; }
  void read(int64_t, const ReadContext&, const SampleRow&) const override {
    GPUTRAIN_ASSERT(false, "there are no samples");
  }
  std::optional<Normalization> normalization() const override { return known_.normalization; }
  std::vector<std::string> class_names() const override { return known_.class_names; }
  std::shared_ptr<const tokenizers::Tokenizer> tokenizer() const override { return known_.tokenizer; }
  std::string describe() const override { return "no samples"; }

 private:
  Signature known_;
};

}  // namespace

Signature Signature::of(const Dataset& learned, const InputSpec& model) {
  return {.gives = model.target,
          .layout = learned.layout(),
          .class_names = learned.class_names(),
          .normalization = learned.normalization(),
          .tokenizer = learned.tokenizer()};
}

std::string Signature::text() const {
  ordered_json told{{"schema", kSchema},
                    {"gives", gives.name()},
                    {"classes", layout.outputs},
                    {"class_names", class_names},
                    {"vocabulary", layout.vocabulary},
                    {"longest", longest},
                    {"texts_in_row", layout.texts_in_row},
                    {"longest_text", layout.longest_text}};
  if (normalization) told["normalization"] = {{"mean", normalization->mean}, {"std", normalization->std}};
  told["fields"] = ordered_json::array();
  for (const Field& field : layout.fields) told["fields"].push_back(described(field));
  return told.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

Signature Signature::from(std::string_view text, const std::string& where) {
  const auto refuse = [&](const std::string& why) {
    throw Error(ExitCode::data, {.what = "not what a run says of its model: " + why,
                                 .where = where,
                                 .hint = "without this file, the run's training data tells the same"});
  };
  Signature known;
  try {
    const json told = parse_json(text);
    if (!told.is_object()) refuse("no JSON object");
    if (told.at("schema") != kSchema)
      refuse("its schema is " + told.at("schema").dump() + ", and this program knows " + std::to_string(kSchema));
    known.gives = target_named(told.at("gives"));
    known.class_names = told.at("class_names");
    known.longest = number_in(told.at("longest"), 0);
    known.layout.outputs = number_in(told.at("classes"), 0);
    known.layout.vocabulary = number_in(told.at("vocabulary"), 0);
    known.layout.texts_in_row = number_in(told.at("texts_in_row"), 0);
    known.layout.longest_text = number_in(told.at("longest_text"), 0);
    for (const json& field : told.at("fields")) known.layout.fields.push_back(field_from(field));
    if (known.layout.fields.empty()) refuse("it has no fields");
    if (const auto images = told.find("normalization"); images != told.end()) {
      if (!known.layout.is_image()) refuse("it has the mean of images, and reads none");
      known.normalization = normalization_from(*images, known.layout.input().sizes.back());
    }
  } catch (const json::exception& error) {
    refuse(reason_in(error));
  } catch (const std::invalid_argument& error) {
    refuse(error.what());
  }
  if (!known.class_names.empty() && std::ssize(known.class_names) != known.layout.outputs)
    refuse("it names " + std::to_string(known.class_names.size()) + " of " + std::to_string(known.layout.outputs) +
           " classes");
  return known;
}

std::shared_ptr<const Dataset> Signature::without_samples() const { return std::make_shared<NoSamples>(*this); }

}  // namespace gputrain::data
