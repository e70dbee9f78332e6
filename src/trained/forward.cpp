#include "gputrain/nn/recompute.hpp"
#include "gputrain/trained/model.hpp"

namespace gputrain::trained {

at::Tensor outputs_of(models::Model& model, const Batch& batch) {
  const models::Model::LastLayer last = model.last_layer(batch);
  const at::Tensor outputs = last.head.logits ? last.head.logits(last.features) : last.features;
  return outputs.size(-1) == last.classes ? outputs : outputs.narrow(-1, 0, last.classes);
}

Forward::Forward(Model& model) : model_(model), weights_(model.built.arena->working_copy()) {
  if (model.job.spec().eval.hflip && !model.signature.reads_texts()) mirrored_.emplace(*model.built.model);
}

at::Tensor Forward::operator()(const Batch& batch) {
  const nn::ForwardPass pass;
  const at::Tensor outputs = outputs_of(mirrored_ ? *mirrored_ : *model_.built.model, batch);
  const int64_t known = std::ssize(model_.class_names);
  const bool has_more = known > 0 && known < outputs.size(-1) && model_.signature.gives != Target::pairs;
  return has_more ? outputs.narrow(-1, 0, known) : outputs;
}

}  // namespace gputrain::trained
