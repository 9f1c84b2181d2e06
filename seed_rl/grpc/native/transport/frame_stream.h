// A client's stream of frames for programs without TensorFlow, which encode and decode the frames
// themselves. Exported with C names, for ctypes.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_FRAME_STREAM_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_FRAME_STREAM_H_

#include <cstddef>
#include <cstdint>

extern "C" {

struct SeedFrameStream;
struct SeedRequest;

// State of a pending call or request.
enum SeedFrameResult : int {
  kSeedFrameReply = 0,    // The answer has arrived.
  kSeedFramePending = 1,  // Not within the timeout; wait again, or forget the call.
  kSeedFrameBroken = 2,   // It failed, for the reason that is returned in place of an answer.
};

// Creates a connection without waiting for the server. Strings end with a null; an empty token,
// certificate or key means none. Requests may follow, then the start of the stream, then calls.
SeedFrameStream* seed_frame_stream_open(const char* address, const char* token, bool tls,
                                        const char* tls_ca, const char* tls_cert,
                                        const char* tls_key, double keepalive_s,
                                        int64_t max_message_bytes);

// Starts a request of one of the server's other methods, on the same connection; it fails after
// `timeout_s`. Without `wait_for_server`, also if the server cannot be reached.
SeedRequest* seed_frame_stream_request(SeedFrameStream* stream, const char* method,
                                       double timeout_s, bool wait_for_server);
// Waits for its answer. `code`: of gRPC, once it is no longer pending.
int seed_request_wait(SeedRequest* request, double timeout_s, int* code, char** answer,
                      size_t* answer_bytes);
// Deletes the request, cancelling it if it is pending. Required before its stream is deleted.
void seed_request_delete(SeedRequest* request);

// Starts the stream: once, before its first call.
void seed_frame_stream_start(SeedFrameStream* stream);
// Sends a call frame with the given id, and waits for the frame that answers it. Thread-safe.
int seed_frame_stream_call(SeedFrameStream* stream, uint64_t call_id, const char* frame,
                           size_t bytes, double timeout_s, char** answer, size_t* answer_bytes);
// Waits longer for the answer to a pending call.
int seed_frame_stream_wait(SeedFrameStream* stream, uint64_t call_id, double timeout_s,
                           char** answer, size_t* answer_bytes);
// Drops a pending call; its answer will be ignored.
void seed_frame_stream_forget(SeedFrameStream* stream, uint64_t call_id);

// Frees an answer.
void seed_frame_stream_free(char* answer);
// Ends the stream: waiting and later calls return kSeedFrameBroken with `reason`, unless it has
// ended already.
void seed_frame_stream_close(SeedFrameStream* stream, const char* reason);
// Closes and deletes; no other call may be running.
void seed_frame_stream_delete(SeedFrameStream* stream);
}

#endif  // SEED_RL_GRPC_NATIVE_TRANSPORT_FRAME_STREAM_H_
