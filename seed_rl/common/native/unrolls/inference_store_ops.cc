// The kernels of the ops on InferenceStore; inference_store.h has the contract.

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "seed_rl/common/native/early_cancellation.h"
#include "seed_rl/common/native/unrolls/inference_store.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"

namespace seed_rl {
namespace {

namespace tf = tensorflow;

// Type and shape of one row of a field.
struct Field {
  tf::DataType dtype;
  tf::TensorShape shape;
  size_t row_bytes() const { return shape.num_elements() * tf::DataTypeSize(dtype); }
};
using Fields = std::vector<Field>;

// Reads the attributes NAME_dtypes and NAME_shapes.
absl::Status GetFields(tf::OpKernelConstruction* ctx, const std::string& name, Fields* fields) {
  std::vector<tf::DataType> dtypes;
  std::vector<tf::TensorShape> shapes;
  TF_RETURN_IF_ERROR(ctx->GetAttr(name + "_dtypes", &dtypes));
  TF_RETURN_IF_ERROR(ctx->GetAttr(name + "_shapes", &shapes));
  if (dtypes.size() != shapes.size()) {
    return absl::InvalidArgumentError(name + ": the numbers of dtypes and shapes differ.");
  }
  for (size_t i = 0; i < dtypes.size(); ++i) {
    if (!tf::DataTypeCanUseMemcpy(dtypes[i])) {
      return absl::InvalidArgumentError(name + ": fields of type " + tf::DataTypeString(dtypes[i]) +
                                        " cannot be stored.");
    }
    fields->push_back({dtypes[i], shapes[i]});
  }
  return absl::OkStatus();
}

std::vector<size_t> RowBytes(const Fields& fields) {
  std::vector<size_t> bytes;
  for (const Field& field : fields) bytes.push_back(field.row_bytes());
  return bytes;
}

const uint8_t* Bytes(const tf::Tensor& tensor) {
  return reinterpret_cast<const uint8_t*>(tensor.tensor_data().data());
}

uint8_t* MutableBytes(tf::Tensor* tensor) { return const_cast<uint8_t*>(Bytes(*tensor)); }

// The store, with the types and shapes of its fields.
class StoreResource : public tf::ResourceBase {
 public:
  StoreResource(StoreOptions options, Fields actions, Fields states, Fields steps,
                std::vector<std::vector<uint8_t>> initial_state)
      : actions(std::move(actions)),
        states(std::move(states)),
        steps(std::move(steps)),
        store(std::move(options), std::move(initial_state)) {}

  std::string DebugString() const override { return "SeedInferenceStore"; }

  const Fields actions, states, steps;
  InferenceStore store;
};

// The store whose handle is the op's first input.
absl::Status Lookup(tf::OpKernelContext* ctx, tf::core::RefCountPtr<StoreResource>* resource) {
  return tf::LookupResource(ctx, tf::HandleFromInput(ctx, 0), resource);
}

absl::Status ToStatus(const StoreError& error) {
  switch (error.code) {
    case StoreError::kOk:
      return absl::OkStatus();
    case StoreError::kInvalidArgument:
      return absl::InvalidArgumentError(error.message);
    case StoreError::kFailedPrecondition:
      return absl::FailedPreconditionError(error.message);
  }
  return absl::InternalError(error.message);
}

// Checks that each tensor of an input list is [batch, *row shape], and returns their bytes.
absl::Status GetRows(const tf::OpInputList& inputs, const Fields& fields, int64_t batch,
                     const char* what, InferenceStore::Rows* rows) {
  if (inputs.size() != static_cast<int>(fields.size())) {
    return absl::InvalidArgumentError(std::string(what) + " should have " +
                                      std::to_string(fields.size()) + " fields but has " +
                                      std::to_string(inputs.size()) + ".");
  }
  for (int i = 0; i < inputs.size(); ++i) {
    tf::TensorShape expected = fields[i].shape;
    expected.InsertDim(0, batch);
    if (inputs[i].dtype() != fields[i].dtype || inputs[i].shape() != expected) {
      return absl::InvalidArgumentError(
          std::string(what) + "[" + std::to_string(i) + "] should be " +
          tf::DataTypeString(fields[i].dtype) + expected.DebugString() + " but is " +
          tf::DataTypeString(inputs[i].dtype()) + inputs[i].shape().DebugString());
    }
    rows->push_back(Bytes(inputs[i]));
  }
  return absl::OkStatus();
}

// Checks a vector input of `batch` elements.
absl::Status CheckVector(const tf::Tensor& tensor, const char* name, int64_t batch) {
  if (tensor.dims() == 1 && tensor.dim_size(0) == batch) return absl::OkStatus();
  return absl::InvalidArgumentError(std::string(name) + " should have shape [" +
                                    std::to_string(batch) + "] but has " +
                                    tensor.shape().DebugString());
}

class CreateOp : public tf::OpKernel {
 public:
  explicit CreateOp(tf::OpKernelConstruction* ctx) : OpKernel(ctx) {
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_envs", &options_.num_envs));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_training_envs", &options_.num_training_envs));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("unroll_length", &options_.unroll_length));
    OP_REQUIRES_OK(ctx, ctx->GetAttr("num_overlapping_steps", &options_.num_overlapping_steps));
    int64_t capacity;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("queue_capacity", &capacity));
    options_.queue_capacity = static_cast<size_t>(capacity);
    int64_t per_step;
    OP_REQUIRES_OK(ctx, ctx->GetAttr("unrolls_per_step", &per_step));
    options_.unrolls_per_step = static_cast<size_t>(per_step);
    OP_REQUIRES_OK(ctx, GetFields(ctx, "action", &actions_));
    OP_REQUIRES_OK(ctx, GetFields(ctx, "state", &states_));
    OP_REQUIRES_OK(ctx, GetFields(ctx, "step", &steps_));
    OP_REQUIRES(ctx,
                options_.num_envs > 0 && options_.num_training_envs >= 0 &&
                    options_.num_training_envs <= options_.num_envs && options_.unroll_length > 0 &&
                    options_.num_overlapping_steps >= 0 && capacity > 0 && per_step >= 0 &&
                    per_step <= capacity,
                absl::InvalidArgumentError("Invalid sizes for the inference store."));
    options_.action_row_bytes = RowBytes(actions_);
    options_.state_row_bytes = RowBytes(states_);
    options_.step_row_bytes = RowBytes(steps_);
  }

  void Compute(tf::OpKernelContext* ctx) override {
    tf::OpInputList initial;
    OP_REQUIRES_OK(ctx, ctx->input_list("initial_state", &initial));
    std::vector<std::vector<uint8_t>> rows;
    for (int i = 0; i < initial.size(); ++i) {
      OP_REQUIRES(ctx, initial[i].tensor_data().size() == options_.state_row_bytes[i],
                  absl::InvalidArgumentError("initial_state should be one row of the state."));
      rows.emplace_back(Bytes(initial[i]), Bytes(initial[i]) + options_.state_row_bytes[i]);
    }
    // The handles own the store: it is destroyed with the last one.
    tf::Tensor* handle;
    OP_REQUIRES_OK(ctx, ctx->allocate_output(0, {}, &handle));
    handle->scalar<tf::ResourceHandle>()() = tf::ResourceHandle::MakeRefCountingHandle(
        new StoreResource(options_, actions_, states_, steps_, std::move(rows)),
        ctx->device()->name());
  }

 private:
  StoreOptions options_;
  Fields actions_, states_, steps_;
};

// An op's wait for the store. Ends exactly once: when the store calls back, or when the step is
// cancelled.
class Wait : public std::enable_shared_from_this<Wait> {
 public:
  Wait(tf::OpKernelContext* ctx, tf::AsyncOpKernel::DoneCallback done,
       tf::core::RefCountPtr<StoreResource> resource)
      : ctx_(ctx), done_(std::move(done)), resource_(std::move(resource)) {}

  StoreResource* resource() { return resource_.get(); }

  // Ends with `finish` once `notify`, given a callback, calls it, or else with an error.
  void Until(const std::function<void(std::function<void()>)>& notify,
             std::function<void()> finish) {
    auto self = shared_from_this();
    auto keep = resource_.GetNewRef();  // A cancellation may come before `notify` returns.
    auto* manager = ctx_->cancellation_manager();
    const auto token = manager ? manager->get_cancellation_token() : 0;
    const bool live = !manager || manager->RegisterCallback(token, [self] {
      if (self->over_.exchange(true)) return;
      self->resource_.reset();
      self->ctx_->SetStatus(absl::CancelledError("The wait for training was cancelled."));
      self->done_();
    });
    OP_REQUIRES_ASYNC(ctx_, live, absl::CancelledError("The step was cancelled."), done_);
    notify([self, manager, token, finish = std::move(finish)] {
      if (self->over_.exchange(true)) return;
      if (manager) manager->TryDeregisterCallback(token);
      finish();
    });
  }

 private:
  tf::OpKernelContext* const ctx_;
  const tf::AsyncOpKernel::DoneCallback done_;
  tf::core::RefCountPtr<StoreResource> resource_;  // Keeps the store alive during the wait.
  std::atomic<bool> over_{false};
};

class BeginOp : public tf::AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(tf::OpKernelContext* ctx, DoneCallback done) override {
    tf::core::RefCountPtr<StoreResource> resource;
    OP_REQUIRES_OK_ASYNC(ctx, Lookup(ctx, &resource), done);
    InferenceStore& store = resource->store;
    const int64_t ticket = store.Ticket();
    if (store.MayBegin()) {
      ctx->SetStatus(Begin(ctx, resource.get(), ticket));
      return done();
    }
    auto wait = std::make_shared<Wait>(ctx, done, std::move(resource));
    wait->Until([&store](auto ready) { store.NotifyWhenMayBegin(std::move(ready)); },
                [ctx, done, wait, ticket] {
                  // The learner's thread ends the wait and must not do this work.
                  (*ctx->runner())([ctx, done, wait, ticket] {
                    ctx->SetStatus(Begin(ctx, wait->resource(), ticket));
                    done();
                  });
                });
  }

 private:
  static absl::Status Begin(tf::OpKernelContext* ctx, StoreResource* resource, int64_t ticket) {
    if (resource->store.training_done()) return absl::OutOfRangeError("Training is done.");
    const tf::Tensor& env_ids = ctx->input(1);
    if (env_ids.dims() != 1) return absl::InvalidArgumentError("env_ids should be a vector.");
    const int64_t batch = env_ids.dim_size(0);
    static constexpr const char* kNames[] = {"run_ids",      "reward",     "done",   "abandoned",
                                             "episode_step", "raw_reward", "success"};
    for (int i = 0; i < 7; ++i) {
      TF_RETURN_IF_ERROR(CheckVector(ctx->input(2 + i), kNames[i], batch));
    }
    InferenceStore::MutableRows actions, states;
    TF_RETURN_IF_ERROR(Allocate(ctx, "prev_actions", resource->actions, batch, &actions));
    TF_RETURN_IF_ERROR(Allocate(ctx, "agent_state", resource->states, batch, &states));
    try {
      return ToStatus(resource->store.Begin(
          ticket, static_cast<int32_t>(batch), env_ids.flat<int32_t>().data(),
          ctx->input(2).flat<int64_t>().data(), ctx->input(3).flat<float>().data(),
          ctx->input(4).flat<bool>().data(), ctx->input(5).flat<bool>().data(),
          ctx->input(6).flat<int32_t>().data(), ctx->input(7).flat<float>().data(),
          ctx->input(8).flat<float>().data(), actions, states));
    } catch (const std::bad_alloc&) {  // No exception may reach TensorFlow's threads.
      return absl::ResourceExhaustedError("There is no memory for another step.");
    }
  }

  static absl::Status Allocate(tf::OpKernelContext* ctx, const char* name, const Fields& fields,
                               int64_t batch, InferenceStore::MutableRows* rows) {
    tf::OpOutputList outputs;
    TF_RETURN_IF_ERROR(ctx->output_list(name, &outputs));
    for (size_t i = 0; i < fields.size(); ++i) {
      tf::TensorShape shape = fields[i].shape;
      shape.InsertDim(0, batch);
      tf::Tensor* tensor;
      TF_RETURN_IF_ERROR(outputs.allocate(i, shape, &tensor));
      rows->push_back(MutableBytes(tensor));
    }
    return absl::OkStatus();
  }
};

class EndOp : public tf::AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(tf::OpKernelContext* ctx, DoneCallback done) override {
    tf::core::RefCountPtr<StoreResource> resource;
    OP_REQUIRES_OK_ASYNC(ctx, Lookup(ctx, &resource), done);
    OP_REQUIRES_OK_ASYNC(ctx, Record(ctx, resource.get()), done);
    // Completes once the queue has room: this is how a slow learner slows its actors down.
    InferenceStore& store = resource->store;
    auto wait = std::make_shared<Wait>(ctx, done, std::move(resource));
    wait->Until([&store](auto ready) { store.NotifyWhenBelowCapacity(std::move(ready)); }, done);
  }

 private:
  static absl::Status Record(tf::OpKernelContext* ctx, StoreResource* resource) {
    const tf::Tensor& env_ids = ctx->input(1);
    const int64_t batch = env_ids.NumElements();
    TF_RETURN_IF_ERROR(CheckVector(ctx->input(2), "run_ids", batch));
    InferenceStore::Rows rows[3];
    const Fields* fields[] = {&resource->actions, &resource->states, &resource->steps};
    static constexpr const char* kNames[] = {"actions", "agent_state", "steps"};
    for (int i = 0; i < 3; ++i) {
      tf::OpInputList inputs;
      TF_RETURN_IF_ERROR(ctx->input_list(kNames[i], &inputs));
      TF_RETURN_IF_ERROR(GetRows(inputs, *fields[i], batch, kNames[i], &rows[i]));
    }
    try {
      resource->store.End(static_cast<int32_t>(batch), env_ids.flat<int32_t>().data(),
                          ctx->input(2).flat<int64_t>().data(), rows[0], rows[1], rows[2]);
    } catch (const std::bad_alloc&) {  // No exception may reach TensorFlow's threads.
      return absl::ResourceExhaustedError("There is no memory for another unroll.");
    }
    return absl::OkStatus();
  }
};

// Waits for `count` unrolls and batches them, time-major.
class DequeueOp : public tf::AsyncOpKernel {
 public:
  using AsyncOpKernel::AsyncOpKernel;

  void ComputeAsync(tf::OpKernelContext* ctx, DoneCallback done) override {
    tf::core::RefCountPtr<StoreResource> resource;
    OP_REQUIRES_OK_ASYNC(ctx, Lookup(ctx, &resource), done);
    const tf::Tensor& count = ctx->input(1);
    OP_REQUIRES_ASYNC(ctx, count.dims() == 0 && count.scalar<int32_t>()() > 0,
                      absl::InvalidArgumentError("count should be a positive scalar."), done);
    const size_t per_step = resource->store.options().unrolls_per_step;
    OP_REQUIRES_ASYNC(ctx, per_step % count.scalar<int32_t>()() == 0,
                      absl::InvalidArgumentError("count should divide unrolls_per_step."), done);
    // The request outlives this call; a cancelled step may withdraw it at any time.
    auto keep = std::make_shared<tf::core::RefCountPtr<StoreResource>>(std::move(resource));
    InferenceStore& store = (*keep)->store;
    auto* manager = ctx->cancellation_manager();
    const auto token = manager ? manager->get_cancellation_token() : 0;
    auto request = std::make_shared<EarlyCancellation>(
        [keep](int64_t id) { (*keep)->store.CancelDequeue(id); });
    if (manager) {
      const bool live = manager->RegisterCallback(token, [request] { request->Cancel(); });
      OP_REQUIRES_ASYNC(ctx, live, absl::CancelledError("Dequeue was cancelled."), done);
    }
    auto ready = [ctx, done, keep, manager, token](std::vector<UnrollPtr> unrolls) {
      // Do not copy megabytes on the thread that completed the last unroll.
      auto shared = std::make_shared<std::vector<UnrollPtr>>(std::move(unrolls));
      (*ctx->runner())([ctx, done, keep, manager, token, shared] {
        if (manager) manager->TryDeregisterCallback(token);
        if (shared->empty()) {
          ctx->SetStatus(absl::OutOfRangeError("The unroll queue is closed."));
        } else {
          ctx->SetStatus(Assemble(ctx, keep->get(), *shared));
          (*keep)->store.Recycle(std::move(*shared));
        }
        done();
      });
    };
    request->Sent(store.Dequeue(count.scalar<int32_t>()(), std::move(ready)));
  }

 private:
  static absl::Status Assemble(tf::OpKernelContext* ctx, StoreResource* resource,
                               const std::vector<UnrollPtr>& unrolls) {
    const int64_t count = static_cast<int64_t>(unrolls.size());
    tf::Tensor* env_ids;
    TF_RETURN_IF_ERROR(ctx->allocate_output(0, {count}, &env_ids));
    for (int64_t i = 0; i < count; ++i) env_ids->vec<int32_t>()(i) = unrolls[i]->env_id;

    tf::OpOutputList outputs;
    TF_RETURN_IF_ERROR(ctx->output_list("agent_state", &outputs));
    for (size_t f = 0; f < resource->states.size(); ++f) {
      tf::TensorShape shape = resource->states[f].shape;
      shape.InsertDim(0, count);
      tf::Tensor* tensor;
      TF_RETURN_IF_ERROR(outputs.allocate(f, shape, &tensor));
      const size_t bytes = resource->states[f].row_bytes();
      for (int64_t i = 0; i < count; ++i) {
        std::memcpy(MutableBytes(tensor) + i * bytes, unrolls[i]->state[f].data(), bytes);
      }
    }
    TF_RETURN_IF_ERROR(ctx->output_list("steps", &outputs));
    const int64_t num_steps = resource->store.options().steps_per_unroll();
    for (size_t f = 0; f < resource->steps.size(); ++f) {
      tf::TensorShape shape = resource->steps[f].shape;
      shape.InsertDim(0, count);
      shape.InsertDim(0, num_steps);
      tf::Tensor* tensor;
      TF_RETURN_IF_ERROR(outputs.allocate(f, shape, &tensor));
      const size_t bytes = resource->steps[f].row_bytes();
      uint8_t* to = MutableBytes(tensor);
      for (int64_t t = 0; t < num_steps; ++t) {
        for (int64_t i = 0; i < count; ++i, to += bytes) {
          std::memcpy(to, unrolls[i]->steps[f].data() + t * bytes, bytes);
        }
      }
    }
    return absl::OkStatus();
  }
};

// An op that is one call of the store.
template <absl::Status (*Run)(tf::OpKernelContext*, InferenceStore&)>
class StoreCallOp : public tf::OpKernel {
 public:
  using OpKernel::OpKernel;
  void Compute(tf::OpKernelContext* ctx) override {
    tf::core::RefCountPtr<StoreResource> resource;
    OP_REQUIRES_OK(ctx, Lookup(ctx, &resource));
    OP_REQUIRES_OK(ctx, Run(ctx, resource->store));
  }
};

absl::Status Trained(tf::OpKernelContext*, InferenceStore& store) {
  store.Trained();
  return absl::OkStatus();
}

absl::Status Close(tf::OpKernelContext* ctx, InferenceStore& store) {
  store.Close(ctx->input(1).scalar<bool>()());
  return absl::OkStatus();
}

absl::Status Episodes(tf::OpKernelContext* ctx, InferenceStore& store) {
  const auto episodes = store.DrainEpisodes();
  const int64_t count = static_cast<int64_t>(episodes.size());
  tf::Tensor* outputs[6];
  for (int i = 0; i < 6; ++i) TF_RETURN_IF_ERROR(ctx->allocate_output(i, {count}, &outputs[i]));
  for (int64_t i = 0; i < count; ++i) {
    outputs[0]->vec<int32_t>()(i) = episodes[i].env_id;
    outputs[1]->vec<int64_t>()(i) = episodes[i].num_steps;
    outputs[2]->vec<float>()(i) = static_cast<float>(episodes[i].episode_return);
    outputs[3]->vec<float>()(i) = static_cast<float>(episodes[i].raw_return);
    outputs[4]->vec<int64_t>()(i) = episodes[i].ended_at;
    outputs[5]->vec<float>()(i) = episodes[i].success;
  }
  return absl::OkStatus();
}

absl::Status Counters(tf::OpKernelContext* ctx, InferenceStore& store) {
  const auto c = store.counters();
  tf::Tensor* output;
  TF_RETURN_IF_ERROR(ctx->allocate_output(0, {7}, &output));
  auto values = output->vec<int64_t>();
  const int64_t all[] = {c.queue_size, c.steps,   c.unrolls, c.lives,
                         c.refused,    c.dropped, c.blocked};
  for (int i = 0; i < 7; ++i) values(i) = all[i];
  return absl::OkStatus();
}

absl::Status Silence(tf::OpKernelContext* ctx, InferenceStore& store) {
  const std::vector<float> silence = store.Silence();
  tf::Tensor* output;
  TF_RETURN_IF_ERROR(ctx->allocate_output(0, {static_cast<int64_t>(silence.size())}, &output));
  std::copy(silence.begin(), silence.end(), output->vec<float>().data());
  return absl::OkStatus();
}

REGISTER_KERNEL_BUILDER(Name("SeedInferenceStore").Device(tf::DEVICE_CPU), CreateOp);
REGISTER_KERNEL_BUILDER(Name("SeedInferenceBegin").Device(tf::DEVICE_CPU), BeginOp);
REGISTER_KERNEL_BUILDER(Name("SeedInferenceEnd").Device(tf::DEVICE_CPU), EndOp);
REGISTER_KERNEL_BUILDER(Name("SeedInferenceDequeue").Device(tf::DEVICE_CPU), DequeueOp);
REGISTER_KERNEL_BUILDER(Name("SeedInferenceTrained").Device(tf::DEVICE_CPU), StoreCallOp<Trained>);
REGISTER_KERNEL_BUILDER(Name("SeedInferenceClose").Device(tf::DEVICE_CPU), StoreCallOp<Close>);
REGISTER_KERNEL_BUILDER(Name("SeedInferenceEpisodes").Device(tf::DEVICE_CPU),
                        StoreCallOp<Episodes>);
REGISTER_KERNEL_BUILDER(Name("SeedInferenceCounters").Device(tf::DEVICE_CPU),
                        StoreCallOp<Counters>);
REGISTER_KERNEL_BUILDER(Name("SeedInferenceSilence").Device(tf::DEVICE_CPU), StoreCallOp<Silence>);

}  // namespace
}  // namespace seed_rl
