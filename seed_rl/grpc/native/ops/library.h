// Loads the transport library, which must not be linked (see transport.h).

#ifndef SEED_RL_GRPC_NATIVE_OPS_LIBRARY_H_
#define SEED_RL_GRPC_NATIVE_OPS_LIBRARY_H_

#include "absl/status/statusor.h"
#include "seed_rl/grpc/native/transport/transport.h"

namespace seed_rl {

struct TransportLibrary {
  transport::CreateServerFn* create_server = nullptr;
  transport::ConnectFn* connect = nullptr;
};

// Loads libseed_transport.so from this library's folder, once.
const absl::StatusOr<TransportLibrary>& LoadTransport();

}  // namespace seed_rl

#endif  // SEED_RL_GRPC_NATIVE_OPS_LIBRARY_H_
