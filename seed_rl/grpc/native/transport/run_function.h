// Runs functions and turns failed allocations into errors.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_RUN_FUNCTION_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_RUN_FUNCTION_H_

#include <new>
#include <vector>

#include "seed_rl/grpc/native/transport/transport.h"
#include "seed_rl/grpc/native/transport/wire.h"

namespace seed_rl::transport {

// The result of `run()`, or an error if an allocation fails.
template <typename Run>
Status OrOutOfMemory(const Run& run) {
  try {
    return run();
  } catch (const std::bad_alloc&) {
    return OutOfMemory();
  }
}

// Runs a function and waits until it has finished.
Status RunAndWait(Function* function, std::vector<Tensor> arguments, std::vector<Tensor>* results);

}  // namespace seed_rl::transport

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_RUN_FUNCTION_H_
