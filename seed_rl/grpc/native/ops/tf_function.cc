#include "seed_rl/grpc/native/ops/tf_function.h"

#include <functional>
#include <new>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "seed_rl/grpc/native/ops/tensors.h"
#include "tensorflow/core/common_runtime/device.h"
#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/common_runtime/process_function_library_runtime.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/grappler/optimizers/meta_optimizer.h"
#include "tensorflow/core/protobuf/config.pb.h"

namespace seed_rl {
namespace {

using tensorflow::FunctionLibraryRuntime;
using tensorflow::NameAttrList;
using tensorflow::Tensor;

// Whether this thread is inside Start. A function's ops run on the calling thread if possible:
// inference graphs are mostly chains, and passing each link to another thread costs more than it
// gains.
thread_local bool t_running = false;

// Threads for the ops of one function. In TensorFlow's shared pool, small ops would wait behind the
// large ones of a training step.
class OpThreads : public tensorflow::thread::ThreadPoolInterface {
 public:
  // With one thread, ops run on the thread that runs the function.
  explicit OpThreads(int num_threads) : num_threads_(num_threads) {
    if (num_threads > 1) {
      pool_ = std::make_unique<tensorflow::thread::ThreadPool>(tensorflow::Env::Default(),
                                                               "seed_ops", num_threads);
    }
  }

  void Schedule(std::function<void()> closure) override {
    if (pool_) {
      pool_->Schedule(std::move(closure));
    } else {
      closure();
    }
  }
  int NumThreads() const override { return num_threads_; }
  int CurrentThreadId() const override { return pool_ ? pool_->CurrentThreadId() : 0; }

 private:
  const int num_threads_;
  std::unique_ptr<tensorflow::thread::ThreadPool> pool_;
};

// Enables the graph optimization that a Python call of a tf.function gets; without it, for example,
// convolution, bias and activation are not fused.
void SetOptimization(const std::string& name, FunctionLibraryRuntime::InstantiateOptions* options) {
  tensorflow::grappler::GrapplerItem::OptimizationOptions optimization;
  optimization.allow_pruning_stateful_and_dataset_ops = true;
  optimization.is_eager_mode = true;
  // Nested functions are optimized together with the op that calls them.
  optimization.optimize_function_library = false;
  options->optimize_graph_fn =
      std::bind(tensorflow::grappler::OptimizeGraph, std::placeholders::_1, std::placeholders::_2,
                std::placeholders::_3, std::placeholders::_4, std::placeholders::_5,
                options->config_proto, name, optimization, std::placeholders::_6);
}

}  // namespace

TfFunction::~TfFunction() = default;

absl::Status TfFunction::Create(tensorflow::OpKernelContext* context,
                                const tensorflow::NameAttrList& function,
                                std::vector<Tensor> captures, size_t num_arguments,
                                size_t num_results, const std::string& config, int op_threads,
                                std::unique_ptr<TfFunction>* result) {
  std::unique_ptr<TfFunction> self(new TfFunction());
  if (context->function_library() == nullptr) {
    return absl::InternalError("No function library");
  }
  TF_RETURN_IF_ERROR(context->function_library()->Clone(&self->definition_, &self->process_runtime_,
                                                        &self->runtime_));
  const std::string host = self->runtime_->device()->name();
  FunctionLibraryRuntime::InstantiateOptions options;
  options.target = host;
  options.is_multi_device_function = true;
  options.input_devices.assign(num_arguments, host);
  for (const Tensor& capture : captures) {
    const bool resource = capture.dtype() == tensorflow::DT_RESOURCE;
    options.input_devices.push_back(
        resource ? capture.scalar<tensorflow::ResourceHandle>()().device() : host);
  }
  options.output_devices.assign(num_results, host);
  if (!options.config_proto.ParseFromString(config)) {
    return absl::InvalidArgumentError("config is not a ConfigProto");
  }
  SetOptimization(function.name(), &options);
  TF_RETURN_IF_ERROR(self->runtime_->Instantiate(
      function.name(), tensorflow::AttrSlice(&function.attr()), options, &self->handle_));
  self->captures_ = std::move(captures);
  if (op_threads > 0) self->op_threads_ = std::make_unique<OpThreads>(op_threads);
  *result = std::move(self);
  return absl::OkStatus();
}

// The state of one run.
struct TfFunction::Run {
  Run(TfFunction* function, transport::Done done)
      : done(std::move(done)),
        cancellation(std::make_unique<tensorflow::CancellationManager>(&function->cancellation_)),
        container(options.step_id, [function](const std::string& name) {
          for (tensorflow::Device* device :
               function->process_runtime_->device_mgr()->ListDevices()) {
            device->resource_manager()->Cleanup(name).IgnoreError();
          }
        }) {
    options.cancellation_manager = cancellation.get();
    options.step_container = &container;
    options.create_rendezvous = true;
    options.run_all_kernels_inline = true;
    options.runner = &function->runner_;
    options.user_intra_op_threadpool = function->op_threads_.get();
  }

  void Finish(const absl::Status& status) {
    absl::Status result = status;
    std::vector<transport::Tensor> results(outputs.size());
    try {
      for (size_t i = 0; result.ok() && i < outputs.size(); ++i) {
        result = ToTransport(outputs[i], &results[i]);
      }
    } catch (const std::bad_alloc&) {
      result = absl::ResourceExhaustedError("Out of memory");
    }
    // Calling `done` may destroy the function.
    container.CleanUp();
    cancellation.reset();
    done(FromStatus(result), std::move(results));
  }

  const transport::Done done;
  std::unique_ptr<tensorflow::CancellationManager> cancellation;
  FunctionLibraryRuntime::Options options;
  tensorflow::ScopedStepContainer container;
  std::vector<Tensor> outputs;
};

TfFunction::TfFunction()
    : runner_([this](std::function<void()> closure) {
        // The successors of an asynchronous op must not occupy the thread that completes it, which
        // may belong to a client or to the other end of a queue.
        if (t_running) {
          closure();
        } else {
          (*runtime_->runner())(std::move(closure));
        }
      }) {}

void TfFunction::Start(std::vector<transport::Tensor> arguments, transport::Done done) {
  std::vector<Tensor> inputs(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::Status status = FromTransport(std::move(arguments[i]), &inputs[i]);
    if (!status.ok()) return done(FromStatus(status), {});
  }
  inputs.insert(inputs.end(), captures_.begin(), captures_.end());
  auto run = std::make_shared<Run>(this, std::move(done));
  t_running = true;
  const auto not_running = absl::MakeCleanup([] { t_running = false; });
  runtime_->Run(run->options, handle_, inputs, &run->outputs,
                [run](const absl::Status& status) { run->Finish(status); });
}

void TfFunction::Cancel() { cancellation_.StartCancel(); }

}  // namespace seed_rl
