// A tf.function that the transport can run.

#ifndef SEED_RL_GRPC_NATIVE_OPS_TF_FUNCTION_H_
#define SEED_RL_GRPC_NATIVE_OPS_TF_FUNCTION_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "seed_rl/grpc/native/transport/transport.h"
#include "tensorflow/core/framework/attr_value.pb.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/platform/threadpool_interface.h"

namespace seed_rl {

// A concrete function and its captured values. Runs without Python (and its global lock).
class TfFunction : public transport::Function {
 public:
  ~TfFunction() override;

  // Instantiates the function. Its graph may use any device; arguments and results are on the host.
  //
  // Args:
  //   context: context of the op that binds the function.
  //   function: name and attributes.
  //   captures: its last inputs, after `num_arguments` arguments.
  //   num_results: number of tensors it returns.
  //   config: serialized ConfigProto with graph optimization options.
  //   op_threads: size of the function's own thread pool for ops; 0: TensorFlow's shared pool.
  static absl::Status Create(tensorflow::OpKernelContext* context,
                             const tensorflow::NameAttrList& function,
                             std::vector<tensorflow::Tensor> captures, size_t num_arguments,
                             size_t num_results, const std::string& config, int op_threads,
                             std::unique_ptr<TfFunction>* result);

  void Start(std::vector<transport::Tensor> arguments, transport::Done done) override;
  void Cancel() override;

 private:
  struct Run;

  TfFunction();

  // A copy of the runtime that outlives the op and its context.
  std::unique_ptr<tensorflow::FunctionLibraryDefinition> definition_;
  std::unique_ptr<tensorflow::ProcessFunctionLibraryRuntime> process_runtime_;
  tensorflow::FunctionLibraryRuntime* runtime_ = nullptr;  // Owned by process_runtime_.
  tensorflow::FunctionLibraryRuntime::Handle handle_ = 0;
  std::vector<tensorflow::Tensor> captures_;
  std::unique_ptr<tensorflow::thread::ThreadPoolInterface> op_threads_;  // Or null.
  tensorflow::CancellationManager cancellation_;
  std::function<void(std::function<void()>)> runner_;  // Runs ops.
};

}  // namespace seed_rl

#endif  // SEED_RL_GRPC_NATIVE_OPS_TF_FUNCTION_H_
