// ONNX files give the logits of our models, in ONNX Runtime, for other sizes than they were made with.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/conv_transpose2d.h>
#include <ATen/ops/full.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/hardsigmoid.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/randn_like.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/upsample_bilinear2d.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gputrain/checkpoint/safetensors.hpp"
#include "gputrain/core/error.hpp"
#include "gputrain/export/export.hpp"
#include "gputrain/setup/signature.hpp"
#include "gputrain/setup/weights.hpp"
#include "support/python_reference.hpp"

namespace gputrain::app {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr int64_t kVocabulary = 40, kLongest = 24, kClasses = 5, kImageSize = 32;

class OnnxTest : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* package : {"onnx", "onnxruntime"}) GPUTRAIN_NEED_REFERENCE(package);
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  const fs::path folder_ = fs::temp_directory_path() / ("gputrain_onnx_" + std::to_string(::getpid()));
};

Job job_of(const std::string& type, const std::vector<std::string>& options) {
  std::vector<std::string> set{"model.type=" + type, "data.train.format=synthetic",
                               "data.train.num_classes=" + std::to_string(kClasses),
                               "data.image.size=" + std::to_string(kImageSize)};
  for (const std::string& option : options) set.push_back("model.config." + option);
  return load_job({.file = {}, .set = std::move(set), .output_dir = {}});
}

/// Opens the data of the model's job, made-up images.
void open_data(trained::Model& model) {
  model.datasets = open_datasets(model.job);
  model.signature = signature_of(model.job, model.datasets);
}

/// With weights of which none is 0 or 1.
BuiltModel random_model(const std::string& type, const std::vector<std::string>& options,
                        const models::DataFacts& facts, const nn::Context& context = {}) {
  const Job job = job_of(type, options);
  BuiltModel built;
  built.model = models::catalog().make(job.spec().model.architecture, context, facts);
  nn::initialize(*built.model, 1);
  const at::NoGradGuard no_grad;
  const auto change = [](const at::Tensor& value) { value.add_(at::randn_like(value), 0.1); };
  built.model->each_parameter([&](const std::string&, nn::Parameter& one) {
    if (one.role == nn::ParameterRole::norm) one.value.mul_(0.5);  // deep sums then stay small
    change(one.value);
  });
  built.model->each_buffer([&](const std::string& name, nn::Buffer& one) {
    if (!one.value.is_floating_point()) return;
    change(one.value);
    if (name.ends_with("running_var")) one.value.abs_();
  });
  built.model->train(false);
  return built;
}

at::Tensor outputs_of(models::Model& model, Batch batch) {
  const at::NoGradGuard no_grad;
  batch.samples = batch.samples_on_all_ranks = batch.input().size(0);
  const auto last = model.last_layer(batch);
  const at::Tensor logits = last.head.logits ? last.head.logits(last.features) : last.features;
  return logits.narrow(-1, 0, last.classes).contiguous();
}

/// Writes what the model says of batches: FILE.safetensors with tensors "0.tokens", ..., "0.expected".
void write_texts(models::Model& model, const fs::path& file, int64_t token_types = 2) {
  checkpoint::NamedTensors tensors;
  int number = 0;
  for (const auto& [rows, length] : {std::pair{1, 1}, {1, 7}, {4, 24}, {7, 13}}) {
    const at::Tensor tokens = at::randint(kVocabulary, {rows, length}, at::kLong),
                     types = at::randint(token_types, {rows, length}, at::kLong);
    for (const bool has_padding : {false, true}) {
      const at::Tensor lengths =
          has_padding ? at::randint(1, length + 1, {rows}, at::kLong) : at::full({rows}, length, at::kLong);
      const std::string prefix = std::to_string(number++) + ".";
      Batch batch;
      batch.fields = {{kTokens, tokens, lengths}, {kTokenTypes, types, lengths}};
      tensors.insert(tensors.end(), {{prefix + "tokens", tokens},
                                     {prefix + "lengths", lengths},
                                     {prefix + "token_types", types},
                                     {prefix + "expected", outputs_of(model, batch)}});
    }
  }
  checkpoint::write_safetensors(file, tensors, {});
}

void write_images(models::Model& model, const fs::path& file) {
  checkpoint::NamedTensors tensors;
  for (const int64_t rows : {1, 4, 7}) {
    const at::Tensor images = at::randn({rows, 3, kImageSize, kImageSize});
    Batch batch;
    batch.fields = {{kImage, images}};
    tensors.emplace_back(std::to_string(rows) + ".image", images);
    tensors.emplace_back(std::to_string(rows) + ".expected", outputs_of(model, batch));
  }
  checkpoint::write_safetensors(file, tensors, {});
}

struct NamedOptions {
  const char* name;
  std::vector<std::string> options;
};

const models::DataFacts kTextFacts{.input_shape = {kLongest}, .num_classes = kClasses, .vocabulary = kVocabulary};

TEST_F(OnnxTest, GivesTheLogitsOfLanguageModels) {
  const std::vector<std::string> small{"n_layer=2", "n_head=4", "n_embd=32", "block_size=24", "vocab_size=40"};
  const NamedOptions models[] = {
      {"gpt2", {"layout=gpt2"}},
      {"llama",
       {"layout=llama", "position=rotary", "norm=rmsnorm", "activation=swiglu", "n_kv_head=2", "bias=false",
        "tie_embeddings=false"}},
      {"window", {"layout=llama", "position=rotary", "norm=rmsnorm", "activation=swiglu", "window=3", "bias=false"}},
      {"gpt_neox",
       {"layout=gpt_neox", "position=rotary", "partial_rotary_factor=0.5", "parallel_residual=true",
        "activation=gelu"}},
      {"qwen3", {"layout=llama", "position=rotary", "norm=rmsnorm", "activation=swiglu", "qk_norm=true", "bias=false"}},
      {"experts",
       {"layout=llama", "position=rotary", "norm=rmsnorm", "activation=swiglu", "bias=false", "n_expert=4",
        "experts_per_token=2"}},
  };
  for (const auto& [name, options] : models) {
    SCOPED_TRACE(name);
    std::vector<std::string> all = small;
    all.insert(all.end(), options.begin(), options.end());
    trained::Model model{job_of("gpt", all)};
    model.signature = {.gives = Target::next_token, .longest = kLongest};
    model.built =
        random_model("gpt", all, {.input_shape = {kLongest}, .num_classes = kVocabulary, .vocabulary = kVocabulary});
    model.longest_text = kLongest;
    write_texts(*model.built.model, folder_ / (std::string(name) + ".safetensors"));
    export_onnx(model, folder_ / (std::string(name) + ".onnx"));
  }
  EXPECT_TRUE(gputrain::testing::run_reference("export/onnx_reference.py", {folder_}));
}

TEST_F(OnnxTest, GivesWhatEncodersSayOfTextsWithPadding) {
  const std::vector<std::string> small{"n_layer=2", "n_head=4", "n_embd=32", "block_size=24", "vocab_size=40"};
  const NamedOptions models[] = {
      {"classifier", {"head=classifier", "num_classes=5"}},
      {"mlm", {"head=mlm"}},
      {"tagger", {"head=tagger", "num_classes=5", "variant=roberta"}},
      {"vectors", {"head=embedder", "pooling=mean", "normalize=true"}},
      {"last", {"head=embedder", "pooling=last"}},
      {"distilbert", {"variant=distilbert", "head=classifier", "num_classes=5"}},
      {"modernbert",
       {"variant=modernbert", "head=classifier", "num_classes=5", "window=4",
        "layer_types=[full_attention, sliding_attention]"}},
  };
  for (const auto& [name, options] : models) {
    SCOPED_TRACE(name);
    std::vector<std::string> all = small;
    all.insert(all.end(), options.begin(), options.end());
    trained::Model encoder{job_of("bert", all)};
    encoder.signature.longest = kLongest;
    encoder.built = random_model("bert", all, kTextFacts);
    encoder.longest_text = kLongest;
    write_texts(*encoder.built.model, folder_ / (std::string(name) + ".safetensors"),
                std::string(name) == "tagger" ? 1 : 2);
    export_onnx(encoder, folder_ / (std::string(name) + ".onnx"));
  }
  const NamedOptions reward{"reward", {"head=classifier", "num_classes=1", "layout=llama", "position=rotary"}};
  std::vector<std::string> all = small;
  all.insert(all.end(), reward.options.begin(), reward.options.end());
  trained::Model rating{job_of("gpt", all)};
  rating.signature = {.gives = Target::rating, .longest = kLongest};
  rating.built = random_model("gpt", all, {.input_shape = {kLongest}, .num_classes = 1, .vocabulary = kVocabulary});
  rating.longest_text = kLongest;
  write_texts(*rating.built.model, folder_ / "reward.safetensors");
  export_onnx(rating, folder_ / "reward.onnx");
  EXPECT_TRUE(gputrain::testing::run_reference("export/onnx_reference.py", {folder_}));
}

/// Options that make an image model small.
std::vector<std::string> small_options(const std::string& name) {
  if (name.starts_with("resnet")) return {"width=8"};
  if (name.starts_with("vit")) return {"n_layer=2", "n_head=2", "n_embd=32", "patch_size=8"};
  if (name == "unet") return {"channels=[8, 16, 24]"};
  if (name.starts_with("convnext")) return {"blocks=[1, 1, 2, 1]", "channels=[8, 16, 24, 32]"};
  return {};
}

bool is_large(models::Model& model) {
  constexpr int64_t kMostNumbers = 30'000'000;
  int64_t numbers = 0;
  model.each_parameter([&](const std::string&, const nn::Parameter& one) { numbers += one.value.numel(); });
  return numbers > kMostNumbers;
}

TEST_F(OnnxTest, GivesTheLogitsOfEveryImageModel) {
  std::vector<std::pair<std::string, std::vector<std::string>>> models{
      {"vit", {"n_layer=2", "n_head=2", "n_embd=32", "patch_size=8", "pooling=mean"}},
      {"resnet50", {"width=8", "stem=cifar"}},
      {"unet", {"channels=[8, 16]", "upsampling=bilinear"}}};
  for (const auto& entry : models::catalog().entries()) models.emplace_back(entry.name, small_options(entry.name));
  int number = 0;
  for (const auto& [type, options] : models) {
    SCOPED_TRACE(type);
    trained::Model model{job_of(type, options)};
    if (models::catalog().reads(model.job.spec().model.architecture).reads_tokens()) continue;
    open_data(model);
    model.built = random_model(type, options, model.datasets.facts, {.channels_last = number % 2 == 0});
    if (is_large(*model.built.model)) continue;  // of its family, a smaller one is written
    const std::string name = type + "_" + std::to_string(number++);
    write_images(*model.built.model, folder_ / (name + ".safetensors"));
    export_onnx(model, folder_ / (name + ".onnx"));
  }
  EXPECT_GE(number, 8);
  EXPECT_TRUE(gputrain::testing::run_reference("export/onnx_reference.py", {folder_}));
}

/// A model of one operator.
class OneOperator final : public models::Model {
 public:
  using Operator = at::Tensor (*)(const at::Tensor&);
  explicit OneOperator(Operator one) : Model(nn::Context{}), one_(one) {}
  at::Tensor forward(const at::Tensor& x) override { return one_(x); }
  std::vector<models::Unit> units() override { return {{"all", {this}}}; }

 private:
  Operator one_;
};

TEST_F(OnnxTest, TranslatesOperatorsAsAtenComputesThem) {
  const std::pair<const char*, OneOperator::Operator> cases[] = {
      {"activations",
       [](const at::Tensor& x) {
         const at::Tensor gated = x.sigmoid() * at::hardsigmoid(x) + at::hardswish(x) - at::silu(x);
         return gated + at::gelu(x, "tanh") * at::gelu(x) + x.tanh() / 3 + x.relu();
       }},
      {"powers",
       [](const at::Tensor& x) {
         const at::Tensor positive = x.abs() + 0.5;
         return positive.pow(1.5) + positive.rsqrt() + positive.sqrt() + positive.log() + (-positive).exp() +
                positive.reciprocal() + at::rsub(x, 2) + x.erf() + x.sin() * x.cos();
       }},
      {"choices",
       [](const at::Tensor& x) {
         const at::Tensor some = x.gt(0.1).logical_or(x.le(-0.5)).logical_and(x.ne(3)).logical_not();
         const at::Tensor others = x.ge(1).logical_or(x.eq(0)).logical_or(x.lt(-1));
         return at::where(some, x, x * 2).masked_fill(others, 0.25).clamp(-0.8, 0.9) + x.clamp_max(0.3);
       }},
      {"addcmul", [](const at::Tensor& x) { return at::addcmul(x, x, x.select(3, 0).unsqueeze(3), 2); }},
      {"rows",
       [](const at::Tensor& x) {
         const at::Tensor rows = x.permute({0, 2, -1, 1}).contiguous().flatten(1, 2);
         return at::cat({rows.slice(1, 1, 900, 7), rows.narrow(1, 3, 4).transpose(1, 2).reshape({-1, 4, 3})}, 1);
       }},
      {"means",
       [](const at::Tensor& x) {
         return x.mean({2, 3}) + x.sum(at::IntArrayRef{-1}).sum(-1) + x.log_softmax(1).mean({2, 3});
       }},
      {"lengths",
       [](const at::Tensor& x) { return at::linalg_vector_norm(x.flatten(1), 2, at::IntArrayRef{1}, true); }},
      {"samples", [](const at::Tensor& x) { return x.flatten(1) * static_cast<double>(1) / x.size(0) * x.size(0); }},
      {"parts",
       [](const at::Tensor& x) {
         return x.chunk(3, 1)[1] - x.split(1, 1)[0] + x.split_with_sizes({1, 2}, 1)[1];
       }},
      {"products",
       [](const at::Tensor& x) {
         const at::Tensor first = x.select(1, 0), second = x.select(1, 1);
         return at::softmax(at::bmm(first, second.transpose(1, 2)), -1) + at::matmul(first, second);
       }},
      {"convolution",
       [](const at::Tensor& x) {
         const at::Tensor weight = at::ones({6, 1, 3, 5}, x.options()) * 0.1;
         return at::conv2d(x, weight, {}, {2, 1}, {1, 2}, {1, 2}, /*groups=*/3);
       }},
      {"transposed convolution",
       [](const at::Tensor& x) {
         const at::Tensor weight = at::ones({3, 2, 2, 3}, x.options()) * 0.1;
         return at::conv_transpose2d(x, weight, {}, {2, 3}, {1, 0}, {1, 0});
       }},
      {"padding",
       [](const at::Tensor& x) {
         return at::constant_pad_nd(x, {1, 2, 0, 3}, 0.5);
       }},
      {"interpolation",
       [](const at::Tensor& x) {
         return at::upsample_bilinear2d(x, {50, 33}, false);
       }},
      {"pool",
       [](const at::Tensor& x) {
         return at::max_pool2d(x, {3, 2}, {2, 2}, {1, 0}, {1, 1}, /*ceil_mode=*/true);
       }},
      {"written over",
       [](const at::Tensor& x) {
         at::Tensor sum = at::zeros({3, 1, 1}, x.options());
         sum.add_(2);
         return (x * sum).relu_().add_(x);
       }},
  };
  trained::Model model{job_of("mlp", {})};
  open_data(model);
  for (const auto& [name, one] : cases) {
    SCOPED_TRACE(name);
    model.built.model = std::make_unique<OneOperator>(one);
    write_images(*model.built.model, folder_ / (std::string(name) + ".safetensors"));
    export_onnx(model, folder_ / (std::string(name) + ".onnx"));
  }
  EXPECT_TRUE(gputrain::testing::run_reference("export/onnx_reference.py", {folder_}));
}

TEST_F(OnnxTest, RefusesModelsThatItCannotWrite) {
  const std::pair<const char*, OneOperator::Operator> cases[] = {
      {"cumsum", [](const at::Tensor& x) { return x.cumsum(1); }},
      {"reads a value", [](const at::Tensor& x) { return x.mul(x.max().item<double>()); }},
      {"another number of samples", [](const at::Tensor& x) { return x.size(0) > 2 ? x.neg() : x.neg().neg(); }},
      {"no multiple", [](const at::Tensor& x) { return x.narrow(0, 0, x.size(0) / 2).neg(); }},
      {"written over",
       [](const at::Tensor& x) {
         const at::Tensor y = x.neg();
         y.narrow(1, 0, 1).zero_();
         return y.neg();
       }},
  };
  trained::Model model{job_of("mlp", {})};
  open_data(model);
  for (const auto& [words, one] : cases) {
    model.built.model = std::make_unique<OneOperator>(one);
    try {
      export_onnx(model, folder_ / "refused.onnx");
      ADD_FAILURE() << words;
    } catch (const std::exception& refusal) {
      EXPECT_THAT(refusal.what(), HasSubstr(words));
    }
  }
  EXPECT_FALSE(fs::exists(folder_ / "refused.onnx"));
}

TEST_F(OnnxTest, OpensARunAndKeepsLargeWeightsInAFileOfTheirOwn) {
  const std::vector<std::string> options{"width=8"};
  const fs::path run = folder_ / "run";
  fs::create_directories(run);
  std::ofstream(run / "job.resolved.yaml")
      << "model: {type: resnet18, config: {width: 8}}\n"
         "data: {train: {format: imagefolder, path: /nowhere}, image: {size: 32}}\n";
  const Job job = job_of("resnet18", options);
  const JobDatasets datasets = open_datasets(job);
  const BuiltModel built = random_model("resnet18", options, datasets.facts);
  write_weights(*built.model, named_weights(*built.model), *datasets.train, RunFolder{run});
  write_images(*built.model, folder_ / "model.safetensors");
  const auto opened = trained::open(trained::find({.folder = run, .set = {"device=cpu", "precision=fp32"}}));
  export_onnx(*opened, folder_ / "model.onnx", /*most_bytes=*/1000);
  EXPECT_GT(fs::file_size(folder_ / "model.onnx.data"), fs::file_size(folder_ / "model.onnx"));
  EXPECT_TRUE(gputrain::testing::run_reference("export/onnx_reference.py", {folder_}));
}

}  // namespace
}  // namespace gputrain::app
