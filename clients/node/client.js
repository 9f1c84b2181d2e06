// A connection to a learner: Describe, then one stream of calls (docs/wire_format.md).
// @ts-check
import fs from "node:fs";
import grpc from "@grpc/grpc-js";
import * as wire from "./wire.js";

const SERVICE = "/seed_rl.Inference/";
const KEEPALIVE_MS = 20_000;
const MAX_MESSAGE = 64 * 1024 * 1024;

/** An answer with an error code: the call failed, the connection is fine. */
class CallError extends Error {
  constructor(/** @type {number} */ code, /** @type {string} */ message) {
    super(message);
    this.code = code;
  }
}

/** The learner is unreachable or went away; a new client may succeed later. */
class ConnectionLost extends Error {}

/**
 * @typedef {{token?: string, tlsCa?: string, tlsCert?: string, tlsKey?: string}} Security
 *   the token itself; paths of PEM files. Without `tlsCa`, there is no encryption.
 * @typedef {{name: string, index: number, arguments: any, outputs: any}} Function_
 */

/**
 * @returns {grpc.ChannelCredentials}
 * @throws {ConnectionLost} for now, the files cannot be used
 */
function credentials(/** @type {string} */ address, /** @type {Security} */ security) {
  if (!security.tlsCa || address.startsWith("unix:")) return grpc.credentials.createInsecure();
  const read = (/** @type {string | undefined} */ path) => path ? fs.readFileSync(path) : null;
  try {
    return grpc.credentials.createSsl(
      read(security.tlsCa), read(security.tlsKey), read(security.tlsCert));
  } catch (/** @type {any} */ error) { // They may be being replaced.
    const paths = [security.tlsCa, security.tlsCert, security.tlsKey].filter(Boolean).join(", ");
    throw new ConnectionLost(`the certificates (${paths}) cannot be used: ${error.message}`);
  }
}

const asIs = (/** @type {any} */ bytes) => bytes;

class Client {
  /**
   * Connects and opens the stream of calls.
   * @param {string} address "host:port" or "unix:/path"
   * @param {Security} security
   * @param {number} timeoutMs to wait for the learner
   * @returns {Promise<Client>}
   * @throws {ConnectionLost} no learner answers in time, or the certificates cannot be used
   * @throws {CallError} it refuses this client, or speaks another protocol
   */
  static async connect(address, security, timeoutMs) {
    const client = new Client(address, security);
    try {
      client.description = await client._describe(timeoutMs);
      client._open();
    } catch (error) {
      client.close();
      throw error;
    }
    return client;
  }

  constructor(/** @type {string} */ address, /** @type {Security} */ security) {
    this._metadata = new grpc.Metadata();
    if (security.token) this._metadata.set("authorization", `Bearer ${security.token}`);
    this._grpc = new grpc.Client(address, credentials(address, security), {
      "grpc.keepalive_time_ms": KEEPALIVE_MS,
      "grpc.keepalive_timeout_ms": KEEPALIVE_MS,
      "grpc.keepalive_permit_without_calls": 1,
      "grpc.max_send_message_length": MAX_MESSAGE,
      "grpc.max_receive_message_length": MAX_MESSAGE,
      "grpc.enable_http_proxy": 0, // Learners are near; a token must not pass through a proxy.
      "grpc.use_local_subchannel_pool": 1, // A new client is a new connection.
      "grpc.initial_reconnect_backoff_ms": 100,
      "grpc.max_reconnect_backoff_ms": 2000,
    });
    /** @type {any} What the learner answered to Describe. */
    this.description = {};
    /** @type {Map<bigint, {resolve: Function, reject: Function}>} */
    this._pending = new Map();
    this._nextId = 1n;
    /** @type {Error | null} */
    this._lost = null;
  }

  /** @returns {Promise<any>} */
  _describe(/** @type {number} */ timeoutMs) {
    return new Promise((resolve, reject) => {
      const options = { deadline: Date.now() + timeoutMs, waitForReady: true };
      this._grpc.makeUnaryRequest(
        `${SERVICE}Describe`, asIs, asIs, Buffer.alloc(0), this._metadata, options,
        (error, answer) => {
          if (error) return reject(asOurs(error));
          let description;
          try {
            description = JSON.parse(String(answer));
          } catch (problem) {
            return reject(new CallError(grpc.status.INVALID_ARGUMENT, `no learner's answer: ${problem}`));
          }
          if (description.protocol !== wire.PROTOCOL_VERSION) {
            return reject(new CallError(grpc.status.FAILED_PRECONDITION,
              `The learner speaks protocol ${description.protocol}, this client `
              + `${wire.PROTOCOL_VERSION}: install the same version on both sides.`));
          }
          resolve(description);
        });
    });
  }

  _open() {
    const stream = this._grpc.makeBidiStreamRequest(`${SERVICE}Call`, asIs, asIs, this._metadata);
    stream.on("data", (/** @type {Buffer} */ message) => this._receive(message));
    stream.on("error", (/** @type {any} */ error) => this._lose(asOurs(error)));
    stream.on("end", () => this._lose(new ConnectionLost("the learner ended the stream")));
    this._stream = stream;
  }

  /** The function of this name, or undefined. @returns {Function_ | undefined} */
  function(/** @type {string} */ name) {
    const index = (this.description.functions ?? []).findIndex(
      (/** @type {any} */ f) => f.name === name);
    return index < 0 ? undefined : { ...this.description.functions[index], index };
  }

  /**
   * Calls function number `index`, and waits for its outputs however long that takes: gRPC's
   * keep-alive notices a dead learner.
   * @param {number} index @param {wire.Tensor[]} tensors
   * @returns {Promise<wire.Tensor[]>}
   */
  call(index, tensors) {
    return new Promise((resolve, reject) => {
      if (this._lost) return reject(this._lost);
      const id = this._nextId++;
      this._pending.set(id, { resolve, reject });
      this._stream?.write(wire.encodeCall(id, index, tensors));
    });
  }

  _receive(/** @type {Buffer} */ message) {
    let frame;
    try {
      frame = wire.decode(message);
    } catch (error) {
      return this._lose(/** @type {Error} */ (error));
    }
    const call = this._pending.get(frame.callId);
    if (!call) return this._lose(new CallError(grpc.status.INTERNAL, "an answer to no call"));
    this._pending.delete(frame.callId);
    if (frame.kind === wire.KIND.reply) call.resolve(frame.tensors);
    else call.reject(asOurs({ code: frame.code, details: frame.message }));
  }

  _lose(/** @type {Error} */ error) {
    this._lost ??= error;
    for (const { reject } of this._pending.values()) reject(this._lost);
    this._pending.clear();
  }

  /** Ends the connection; calls in flight fail. */
  close() {
    this._lose(new ConnectionLost("client closed"));
    this._stream?.cancel();
    this._grpc.close();
  }
}

/** An error of gRPC's, or an error frame, as one of the two classes above. */
function asOurs(/** @type {any} */ error) {
  const { DEADLINE_EXCEEDED, UNAVAILABLE, CANCELLED } = grpc.status;
  const away = [DEADLINE_EXCEEDED, UNAVAILABLE, CANCELLED].includes(error.code);
  const text = (error.details || error.message || "").replace(/ Resolution note: $/, "");
  return away ? new ConnectionLost(text) : new CallError(error.code, text);
}

const { status } = grpc;

export { CallError, Client, ConnectionLost, status };
