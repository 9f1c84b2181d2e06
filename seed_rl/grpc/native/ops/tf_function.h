// A tf.function as the transport runs it.

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

// A concrete function with the values it captured. Runs without Python (and its lock).
class TfFunction : public transport::Function {
 public:
  ~TfFunction() override;

  // Compiles the function. Its graph may use any device; arguments and results are on the host.
  //
  // Args:
  //   context: of the op that binds the function.
  //   function: name and attributes.
  //   captures: its last inputs, after `num_arguments` others.
  //   num_results: how many tensors it returns.
  //   config: serialized ConfigProto with the options of the graph's optimization.
  //   op_threads: threads that the ops of a run share; 0: those that all of TensorFlow shares.
  static absl::Status Create(tensorflow::OpKernelContext* context,
                             const tensorflow::NameAttrList& function,
                             std::vector<tensorflow::Tensor> captures, size_t num_arguments,
                             size_t num_results, const std::string& config, int op_threads,
                             std::unique_ptr<TfFunction>* result);

  void Start(std::vector<transport::Tensor> arguments, Done done) override;
  void Cancel() override;

 private:
  struct Run;

  TfFunction();

  // A copy of the runtime, which thus outlives the op and its context.
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
