#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "seed_rl/grpc/native/ops/library.h"
#include "seed_rl/grpc/native/ops/tensors.h"
#include "seed_rl/grpc/native/ops/tf_function.h"
#include "seed_rl/grpc/native/transport/transport.h"
#include "tensorflow/core/common_runtime/input_colocation_exemption_registry.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace tensorflow {

// Functions may capture variables on any device; the op only keeps their handles.
REGISTER_INPUT_COLOCATION_EXEMPTION("SeedGrpcServerBind");

}  // namespace tensorflow

namespace seed_rl {
namespace {

using tensorflow::DEVICE_CPU;
using tensorflow::OpInputList;
using tensorflow::OpKernel;
using tensorflow::OpKernelConstruction;
using tensorflow::OpKernelContext;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

REGISTER_OP("SeedGrpcServer")
    .Input("server_addresses: string")
    .Input("token: string")
    .Input("tls_certificate: string")
    .Input("tls_key: string")
    .Attr("max_batch_size: int")
    .Attr("batch_timeout_ms: float")
    .Attr("max_message_bytes: int")
    .Attr("max_connections: int")
    .Attr("max_calls_per_peer: int")
    .Attr("max_bytes_per_peer: int")
    .Attr("max_bytes: int")
    .Attr("keepalive_s: float")
    .Attr("threads: int")
    .Output("server: resource")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape)
    .Doc("Creates a server, which lives as long as its handle.");

REGISTER_OP("SeedGrpcServerBind")
    .Input("server: resource")
    .Input("captures: captures_types")
    .Attr("captures_types: list(type) >= 0")
    .Attr("num_captures: list(int)")
    .Attr("functions: list(func)")
    .Attr("function_name: string")
    .Attr("argument_types: list(type) >= 0")
    .Attr("argument_shapes: list(shape) >= 0")
    .Attr("num_results: int")
    .Attr("batch: int")
    .Attr("isolate_errors: bool")
    .Attr("max_in_flight: int")
    .Attr("op_threads: int")
    .Attr("config: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs)
    .Doc("Binds functions under one name; `captures` are concatenated, in order of the functions.");

REGISTER_OP("SeedGrpcServerStart")
    .Input("server: resource")
    .Input("description: string")
    .Output("ports: int32")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      c->set_output(0, c->Vector(tensorflow::shape_inference::InferenceContext::kUnknownDim));
      return absl::OkStatus();
    });

REGISTER_OP("SeedGrpcServerShutdown")
    .Input("server: resource")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

REGISTER_OP("SeedGrpcServerStats")
    .Input("server: resource")
    .Output("stats: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::ScalarShape);

REGISTER_OP("SeedGrpcServerSetStatus")
    .Input("server: resource")
    .Input("status: string")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

class ServerResource : public tensorflow::ResourceBase {
 public:
  explicit ServerResource(std::unique_ptr<transport::Server> server) : server_(std::move(server)) {}

  // Does not wait for running functions: the thread that drops the last reference may hold locks
  // they need, such as Python's.
  ~ServerResource() override {
    if (shut_down_) return;
    std::thread([server = std::move(server_)]() mutable { server.reset(); }).detach();
  }

  std::string DebugString() const override { return "SEED RL server"; }
  transport::Server* server() { return server_.get(); }

  void Shutdown() {
    server_->Shutdown();
    shut_down_ = true;
  }

 private:
  std::unique_ptr<transport::Server> server_;
  std::atomic<bool> shut_down_{false};
};

class ServerOp : public OpKernel {
 public:
  explicit ServerOp(OpKernelConstruction* context) : OpKernel(context) {
    float batch_timeout_ms, keepalive_s;
    OP_REQUIRES_OK(context, context->GetAttr("max_batch_size", &config_.max_batch_size));
    OP_REQUIRES_OK(context, context->GetAttr("batch_timeout_ms", &batch_timeout_ms));
    OP_REQUIRES_OK(context, context->GetAttr("max_message_bytes", &config_.max_message_bytes));
    OP_REQUIRES_OK(context, context->GetAttr("max_connections", &config_.max_connections));
    OP_REQUIRES_OK(context, context->GetAttr("max_calls_per_peer", &config_.max_calls_per_peer));
    OP_REQUIRES_OK(context, context->GetAttr("max_bytes_per_peer", &config_.max_bytes_per_peer));
    OP_REQUIRES_OK(context, context->GetAttr("max_bytes", &config_.max_bytes));
    OP_REQUIRES_OK(context, context->GetAttr("keepalive_s", &keepalive_s));
    OP_REQUIRES_OK(context, context->GetAttr("threads", &config_.threads));
    config_.batch_timeout_ms = batch_timeout_ms;
    config_.keepalive_s = keepalive_s;
  }

  void Compute(OpKernelContext* context) override {
    const absl::StatusOr<TransportLibrary>& library = LoadTransport();
    OP_REQUIRES_OK(context, library.status());
    const Tensor& addresses = context->input(0);
    OP_REQUIRES(context, addresses.dims() == 1 && addresses.NumElements() > 0,
                absl::InvalidArgumentError("server_addresses must be a vector"));
    transport::ServerConfig config = config_;
    for (int64_t i = 0; i < addresses.NumElements(); ++i) {
      config.addresses.push_back(addresses.vec<tstring>()(i));
    }
    config.token = context->input(1).scalar<tstring>()();
    config.tls_certificate = context->input(2).scalar<tstring>()();
    config.tls_key = context->input(3).scalar<tstring>()();
    std::unique_ptr<transport::Server> server(library->create_server(config));
    Tensor* handle;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &handle));
    handle->scalar<tensorflow::ResourceHandle>()() =
        tensorflow::ResourceHandle::MakeRefCountingHandle(new ServerResource(std::move(server)),
                                                          context->device()->name());
  }

 private:
  transport::ServerConfig config_;
};

// An op on a server.
class OpOnServer : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) final {
    tensorflow::core::RefCountPtr<ServerResource> resource;
    OP_REQUIRES_OK(context, tensorflow::LookupResource(
                                context, tensorflow::HandleFromInput(context, 0), &resource));
    OP_REQUIRES_OK(context, Compute(context, resource.get()));
  }

 protected:
  virtual absl::Status Compute(OpKernelContext* context, ServerResource* resource) = 0;
};

class BindOp : public OpOnServer {
 public:
  explicit BindOp(OpKernelConstruction* context) : OpOnServer(context) {
    OP_REQUIRES_OK(context, context->GetAttr("num_captures", &num_captures_));
    OP_REQUIRES_OK(context, context->GetAttr("functions", &functions_));
    OP_REQUIRES_OK(context, context->GetAttr("function_name", &name_));
    OP_REQUIRES_OK(context, context->GetAttr("argument_types", &types_));
    OP_REQUIRES_OK(context, context->GetAttr("argument_shapes", &shapes_));
    OP_REQUIRES_OK(context, context->GetAttr("num_results", &num_results_));
    OP_REQUIRES_OK(context, context->GetAttr("batch", &batch_));
    OP_REQUIRES_OK(context, context->GetAttr("isolate_errors", &isolate_errors_));
    OP_REQUIRES_OK(context, context->GetAttr("max_in_flight", &max_in_flight_));
    OP_REQUIRES_OK(context, context->GetAttr("op_threads", &op_threads_));
    OP_REQUIRES_OK(context, context->GetAttr("config", &config_));
    OP_REQUIRES(context,
                types_.size() == shapes_.size() && num_captures_.size() == functions_.size(),
                absl::InvalidArgumentError("Attributes have different lengths"));
  }

 protected:
  absl::Status Compute(OpKernelContext* context, ServerResource* resource) override {
    transport::Binding binding;
    binding.name = name_;
    binding.num_results = num_results_;
    binding.batch = batch_;
    binding.isolate_errors = isolate_errors_;
    binding.max_in_flight = max_in_flight_;
    for (size_t i = 0; i < types_.size(); ++i) {
      transport::DType dtype;
      TF_RETURN_IF_ERROR(ToDType(types_[i], &dtype));
      binding.arguments.push_back(ToSpec(dtype, shapes_[i]));
    }
    OpInputList inputs;
    TF_RETURN_IF_ERROR(context->input_list("captures", &inputs));
    int next = 0;
    for (size_t i = 0; i < functions_.size(); ++i) {
      std::vector<Tensor> captures;
      for (int k = 0; k < num_captures_[i]; ++k) captures.push_back(inputs[next++]);
      std::unique_ptr<TfFunction> function;
      TF_RETURN_IF_ERROR(TfFunction::Create(context, functions_[i], std::move(captures),
                                            types_.size(), num_results_, config_, op_threads_,
                                            &function));
      binding.functions.push_back(std::move(function));
    }
    return ToStatus(resource->server()->Bind(std::move(binding)));
  }

 private:
  std::vector<int> num_captures_;
  std::vector<tensorflow::NameAttrList> functions_;
  std::string name_;
  std::vector<tensorflow::DataType> types_;
  std::vector<tensorflow::PartialTensorShape> shapes_;
  int num_results_;
  int64_t batch_;
  bool isolate_errors_;
  int max_in_flight_;
  int op_threads_;
  std::string config_;
};

// An op that is one call of the server.
template <absl::Status (*Run)(OpKernelContext*, ServerResource*)>
class ServerCallOp : public OpOnServer {
 public:
  using OpOnServer::OpOnServer;

 protected:
  absl::Status Compute(OpKernelContext* context, ServerResource* resource) override {
    return Run(context, resource);
  }
};

absl::Status Start(OpKernelContext* context, ServerResource* resource) {
  std::vector<int> ports;
  TF_RETURN_IF_ERROR(
      ToStatus(resource->server()->Start(context->input(1).scalar<tstring>()(), &ports)));
  Tensor* output;
  const int64_t size = ports.size();
  TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({size}), &output));
  for (int64_t i = 0; i < size; ++i) output->vec<int>()(i) = ports[i];
  return absl::OkStatus();
}

absl::Status Shutdown(OpKernelContext*, ServerResource* resource) {
  resource->Shutdown();
  return absl::OkStatus();
}

absl::Status Stats(OpKernelContext* context, ServerResource* resource) {
  Tensor* output;
  TF_RETURN_IF_ERROR(context->allocate_output(0, TensorShape({}), &output));
  output->scalar<tstring>()() = resource->server()->Stats();
  return absl::OkStatus();
}

absl::Status SetStatus(OpKernelContext* context, ServerResource* resource) {
  resource->server()->SetStatus(context->input(1).scalar<tstring>()());
  return absl::OkStatus();
}

REGISTER_KERNEL_BUILDER(Name("SeedGrpcServer").Device(DEVICE_CPU), ServerOp);
REGISTER_KERNEL_BUILDER(Name("SeedGrpcServerBind").Device(DEVICE_CPU), BindOp);
REGISTER_KERNEL_BUILDER(Name("SeedGrpcServerStart").Device(DEVICE_CPU), ServerCallOp<Start>);
REGISTER_KERNEL_BUILDER(Name("SeedGrpcServerShutdown").Device(DEVICE_CPU), ServerCallOp<Shutdown>);
REGISTER_KERNEL_BUILDER(Name("SeedGrpcServerStats").Device(DEVICE_CPU), ServerCallOp<Stats>);
REGISTER_KERNEL_BUILDER(Name("SeedGrpcServerSetStatus").Device(DEVICE_CPU),
                        ServerCallOp<SetStatus>);

}  // namespace
}  // namespace seed_rl
