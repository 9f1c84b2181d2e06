// A client's stream of frames for programs without TensorFlow, which encode and decode the frames
// themselves. Exported with C names, for ctypes.

#ifndef SEED_RL_GRPC_NATIVE_TRANSPORT_FRAME_STREAM_H_
#define SEED_RL_GRPC_NATIVE_TRANSPORT_FRAME_STREAM_H_

#include <cstddef>
#include <cstdint>

extern "C" {

struct SeedFrameStream;

// State of a pending call.
enum SeedFrameResult : int {
  kSeedFrameReply = 0,    // A frame has arrived.
  kSeedFramePending = 1,  // Not within the timeout; wait again, or forget the call.
  kSeedFrameBroken =
      2,  // The stream has ended, for the reason that is returned in place of a frame.
};

// Opens a stream without waiting for the server. Strings end with a null; an empty token,
// certificate or key means none.
SeedFrameStream* seed_frame_stream_open(const char* address, const char* token, bool tls,
                                        const char* tls_ca, const char* tls_cert,
                                        const char* tls_key, double keepalive_s,
                                        int64_t max_message_bytes);

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
