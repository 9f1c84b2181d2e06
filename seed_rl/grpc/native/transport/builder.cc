#include "seed_rl/grpc/native/transport/builder.h"

#include <algorithm>
#include <limits>

#include "seed_rl/grpc/native/transport/wire.h"

namespace seed_rl::transport {
namespace {

// Room for headers, and for calls that are too large, so that they get an error.
constexpr size_t kMinReceiveBytes = 4 << 20;
constexpr size_t kUnboundedCall = std::numeric_limits<size_t>::max();

// The largest message that is received at all: gRPC keeps what has arrived of a message until it is
// complete.
int MaxReceiveBytes(const ServerConfig& config, size_t max_call_bytes) {
  const size_t limit = config.max_message_bytes;
  if (max_call_bytes >= limit) return limit;
  return std::min(limit, std::max(kMinReceiveBytes, 2 * max_call_bytes));
}

}  // namespace

size_t MaxCallBytes(const Binding& binding, int64_t max_batch_size) {
  const bool batched = binding.batch != kUnbatched;
  size_t total = 0;
  for (const Spec& spec : binding.arguments) {
    if (!spec.rank_known || spec.dtype == DType::kString) return kUnboundedCall;
    size_t bytes = ItemSize(spec.dtype);
    for (size_t d = 0; d < spec.dims.size(); ++d) {
      const int64_t rows = binding.batch == kDynamicBatch ? max_batch_size : binding.batch;
      const int64_t size = batched && d == 0 ? rows : spec.dims[d];
      if (size < 0 || __builtin_mul_overflow(bytes, size_t(size), &bytes)) return kUnboundedCall;
    }
    if (__builtin_add_overflow(total, bytes, &total)) return kUnboundedCall;
  }
  return total;
}

void SetChannelArguments(const ServerConfig& config, size_t max_call_bytes,
                         grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(MaxReceiveBytes(config, max_call_bytes));
  builder->SetMaxSendMessageSize(-1);
  // A small message could expand to a large one, and the limit above counts compressed bytes.
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder->SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder->AddChannelArgument(GRPC_ARG_ENABLE_PER_MESSAGE_DECOMPRESSION, 0);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, int(config.keepalive_s * 1000));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, int(config.keepalive_s * 1000));
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
}

std::shared_ptr<grpc::ServerCredentials> TcpCredentials(const ServerConfig& config) {
  if (config.tls_certificate.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back({config.tls_key, config.tls_certificate});
  return grpc::SslServerCredentials(options);
}

}  // namespace seed_rl::transport
