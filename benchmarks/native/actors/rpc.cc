#include "rpc.h"

namespace benchmarks {
namespace {

constexpr int kKeepaliveMs = 20'000;  // The same as that of real actors.

}  // namespace

Rpc::Rpc(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // Shares no connection.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetMaxReceiveMessageSize(-1);
  channel = grpc::CreateCustomChannel(address, credentials, arguments);
  stub = std::make_unique<grpc::GenericStub>(channel);
  context.set_wait_for_ready(true);
}

}  // namespace benchmarks
