// A connection with one RPC.

#ifndef BENCHMARKS_NATIVE_ACTORS_RPC_H_
#define BENCHMARKS_NATIVE_ACTORS_RPC_H_

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

namespace benchmarks {

struct Rpc {
  Rpc(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials);

  std::shared_ptr<grpc::Channel> channel;
  std::unique_ptr<grpc::GenericStub> stub;
  grpc::ClientContext context;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream;
  std::unique_ptr<grpc::GenericClientAsyncResponseReader> unary;
  grpc::ByteBuffer reply;
  grpc::Status status;
};

}  // namespace benchmarks

#endif  // BENCHMARKS_NATIVE_ACTORS_RPC_H_
