#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "seed_rl/common/native/early_cancellation.h"
#include "seed_rl/grpc/native/ops/library.h"
#include "seed_rl/grpc/native/ops/tensors.h"
#include "seed_rl/grpc/native/transport/transport.h"
#include "tensorflow/core/framework/cancellation.h"
#include "tensorflow/core/framework/common_shape_fns.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/shape_inference.h"

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
using tensorflow::core::RefCountPtr;

REGISTER_OP("SeedGrpcClient")
    .Input("server_address: string")
    .Input("token: string")
    .Input("tls_ca: string")
    .Input("tls_cert: string")
    .Input("tls_key: string")
    .Attr("connect_timeout_s: float")
    .Attr("call_timeout_s: float")
    .Attr("max_message_bytes: int")
    .Attr("tls: bool")
    .Attr("keepalive_s: float")
    .Output("client: resource")
    .Output("description: string")
    .SetIsStateful()
    .SetShapeFn([](tensorflow::shape_inference::InferenceContext* c) {
      c->set_output(0, c->Scalar());
      c->set_output(1, c->Scalar());
      return absl::OkStatus();
    })
    .Doc("Connects a client, which lives as long as its handle.");

REGISTER_OP("SeedGrpcClientCall")
    .Input("client: resource")
    .Input("arguments: argument_types")
    .Attr("function: int")
    .Attr("argument_types: list(type) >= 0")
    .Attr("result_types: list(type) >= 0")
    .Output("results: result_types")
    .SetIsStateful()
    .SetIsDistributedCommunication()
    .SetShapeFn(tensorflow::shape_inference::UnknownShape)
    .Doc("Calls a function of the server.");

REGISTER_OP("SeedGrpcClientClose")
    .Input("client: resource")
    .SetIsStateful()
    .SetShapeFn(tensorflow::shape_inference::NoOutputs);

struct ClientResource : public tensorflow::ResourceBase {
  explicit ClientResource(std::unique_ptr<transport::Client> client) : client(std::move(client)) {}
  std::string DebugString() const override { return "SEED RL client"; }

  const std::unique_ptr<transport::Client> client;
};

class ClientOp : public OpKernel {
 public:
  explicit ClientOp(OpKernelConstruction* context) : OpKernel(context) {
    float connect_timeout_s, call_timeout_s, keepalive_s;
    OP_REQUIRES_OK(context, context->GetAttr("connect_timeout_s", &connect_timeout_s));
    OP_REQUIRES_OK(context, context->GetAttr("call_timeout_s", &call_timeout_s));
    OP_REQUIRES_OK(context, context->GetAttr("max_message_bytes", &config_.max_message_bytes));
    OP_REQUIRES_OK(context, context->GetAttr("tls", &config_.tls));
    OP_REQUIRES_OK(context, context->GetAttr("keepalive_s", &keepalive_s));
    config_.connect_timeout_s = connect_timeout_s;
    config_.call_timeout_s = call_timeout_s;
    config_.keepalive_s = keepalive_s;
  }

  void Compute(OpKernelContext* context) override {
    const absl::StatusOr<TransportLibrary>& library = LoadTransport();
    OP_REQUIRES_OK(context, library.status());
    OP_REQUIRES(context, context->input(0).dims() == 0,
                absl::InvalidArgumentError("server_address must be a scalar"));
    transport::ClientConfig config = config_;
    config.address = context->input(0).scalar<tstring>()();
    config.token = context->input(1).scalar<tstring>()();
    config.tls_ca = context->input(2).scalar<tstring>()();
    config.tls_cert = context->input(3).scalar<tstring>()();
    config.tls_key = context->input(4).scalar<tstring>()();
    transport::Status status;
    std::unique_ptr<transport::Client> client(library->connect(config, &status));
    OP_REQUIRES_OK(context, ToStatus(status));
    Tensor* handle;
    OP_REQUIRES_OK(context, context->allocate_output(0, TensorShape({}), &handle));
    Tensor* description;
    OP_REQUIRES_OK(context, context->allocate_output(1, TensorShape({}), &description));
    description->scalar<tstring>()() = client->description();
    handle->scalar<tensorflow::ResourceHandle>()() =
        tensorflow::ResourceHandle::MakeRefCountingHandle(new ClientResource(std::move(client)),
                                                          context->device()->name());
  }

 private:
  transport::ClientConfig config_;
};

// Asynchronous: a blocking kernel would occupy a thread of TensorFlow's pool, and several clients
// in a process all of them.
class CallOp : public tensorflow::AsyncOpKernel {
 public:
  explicit CallOp(OpKernelConstruction* context) : AsyncOpKernel(context) {
    OP_REQUIRES_OK(context, context->GetAttr("function", &function_));
  }

  void ComputeAsync(OpKernelContext* context, DoneCallback done) override {
    RefCountPtr<ClientResource> resource;
    OP_REQUIRES_OK_ASYNC(
        context,
        tensorflow::LookupResource(context, tensorflow::HandleFromInput(context, 0), &resource),
        done);
    OpInputList inputs;
    OP_REQUIRES_OK_ASYNC(context, context->input_list("arguments", &inputs), done);
    std::vector<transport::Tensor> arguments(inputs.size());
    for (int i = 0; i < inputs.size(); ++i) {
      OP_REQUIRES_OK_ASYNC(context, ToTransport(inputs[i], &arguments[i]), done);
    }
    transport::Client& client = *resource->client;
    auto call = std::make_shared<EarlyCancellation>(
        [keep = std::make_shared<RefCountPtr<ClientResource>>(std::move(resource))](int64_t id) {
          (*keep)->client->Cancel(id);
        });
    tensorflow::CancellationManager* cancellation = context->cancellation_manager();
    tensorflow::CancellationToken token = 0;
    if (cancellation != nullptr) {
      token = cancellation->get_cancellation_token();
      OP_REQUIRES_ASYNC(context, cancellation->RegisterCallback(token, [call] { call->Cancel(); }),
                        absl::CancelledError("The call was cancelled"), done);
    }
    const uint64_t id =
        client.Call(function_, arguments,
                    [context, done, cancellation, token](const transport::Status& status,
                                                         std::vector<transport::Tensor> results) {
                      // Not DeregisterCallback, which would wait for the cancellation that may be
                      // calling this.
                      if (cancellation != nullptr) cancellation->TryDeregisterCallback(token);
                      context->SetStatus(status.ok() ? SetResults(context, std::move(results))
                                                     : ToStatus(status));
                      done();
                    });
    call->Sent(static_cast<int64_t>(id));
  }

 private:
  static absl::Status SetResults(OpKernelContext* context, std::vector<transport::Tensor> results) {
    if (static_cast<int>(results.size()) != context->num_outputs()) {
      return absl::InternalError(absl::StrCat("The server returned ", results.size(),
                                              " tensors, not ", context->num_outputs()));
    }
    for (size_t i = 0; i < results.size(); ++i) {
      if (FromDType(results[i].dtype) != context->expected_output_dtype(i)) {
        return absl::InternalError(absl::StrCat("The server's result ", i, " has another type"));
      }
      Tensor output;
      TF_RETURN_IF_ERROR(FromTransport(std::move(results[i]), &output));
      context->set_output(i, output);
    }
    return absl::OkStatus();
  }

  int function_;
};

class CloseOp : public OpKernel {
 public:
  using OpKernel::OpKernel;

  void Compute(OpKernelContext* context) override {
    RefCountPtr<ClientResource> resource;
    OP_REQUIRES_OK(context, tensorflow::LookupResource(
                                context, tensorflow::HandleFromInput(context, 0), &resource));
    resource->client->Close();
  }
};

REGISTER_KERNEL_BUILDER(Name("SeedGrpcClient").Device(DEVICE_CPU), ClientOp);
REGISTER_KERNEL_BUILDER(Name("SeedGrpcClientCall").Device(DEVICE_CPU), CallOp);
REGISTER_KERNEL_BUILDER(Name("SeedGrpcClientClose").Device(DEVICE_CPU), CloseOp);

}  // namespace
}  // namespace seed_rl
