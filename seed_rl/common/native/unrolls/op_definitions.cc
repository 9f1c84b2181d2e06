// Definitions of the ops on InferenceStore; the kernels are in inference_store_ops.cc.

#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace seed_rl {
namespace {

namespace tf = tensorflow;

REGISTER_OP("SeedInferenceStore")
    .Input("initial_state: state_dtypes")
    .Output("handle: resource")
    .Attr("num_envs: int")
    .Attr("num_training_envs: int")
    .Attr("unroll_length: int")
    .Attr("num_overlapping_steps: int")
    .Attr("queue_capacity: int")
    .Attr("unrolls_per_step: int")
    .Attr("action_dtypes: list(type) >= 0")
    .Attr("action_shapes: list(shape) >= 0")
    .Attr("state_dtypes: list(type) >= 0")
    .Attr("state_shapes: list(shape) >= 0")
    .Attr("step_dtypes: list(type) >= 0")
    .Attr("step_shapes: list(shape) >= 0")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::ScalarShape);

REGISTER_OP("SeedInferenceBegin")
    .Input("handle: resource")
    .Input("env_ids: int32")
    .Input("run_ids: int64")
    .Input("reward: float")
    .Input("done: bool")
    .Input("abandoned: bool")
    .Input("episode_step: int32")
    .Input("raw_reward: float")
    .Input("success: float")
    .Output("prev_actions: action_dtypes")
    .Output("agent_state: state_dtypes")
    .Attr("action_dtypes: list(type) >= 0")
    .Attr("state_dtypes: list(type) >= 0")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::UnknownShape);

REGISTER_OP("SeedInferenceEnd")
    .Input("handle: resource")
    .Input("env_ids: int32")
    .Input("run_ids: int64")
    .Input("actions: action_dtypes")
    .Input("agent_state: state_dtypes")
    .Input("steps: step_dtypes")
    .Attr("action_dtypes: list(type) >= 0")
    .Attr("state_dtypes: list(type) >= 0")
    .Attr("step_dtypes: list(type) >= 0")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::NoOutputs);

REGISTER_OP("SeedInferenceDequeue")
    .Input("handle: resource")
    .Input("count: int32")
    .Output("env_ids: int32")
    .Output("agent_state: state_dtypes")
    .Output("steps: step_dtypes")
    .Attr("state_dtypes: list(type) >= 0")
    .Attr("step_dtypes: list(type) >= 0")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::UnknownShape);

REGISTER_OP("SeedInferenceTrained")
    .Input("handle: resource")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::NoOutputs);

REGISTER_OP("SeedInferenceClose")
    .Input("handle: resource")
    .Input("done: bool")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::NoOutputs);

REGISTER_OP("SeedInferenceEpisodes")
    .Input("handle: resource")
    .Output("env_ids: int32")
    .Output("num_steps: int64")
    .Output("returns: float")
    .Output("raw_returns: float")
    .Output("ended_at: int64")
    .Output("successes: float")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::UnknownShape);

REGISTER_OP("SeedInferenceCounters")
    .Input("handle: resource")
    .Output("counters: int64")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::UnknownShape);

REGISTER_OP("SeedInferenceSilence")
    .Input("handle: resource")
    .Output("silence: float")
    .SetIsStateful()
    .SetShapeFn(tf::shape_inference::UnknownShape);

}  // namespace
}  // namespace seed_rl
