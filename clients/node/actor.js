// The actor: steps environments, requests actions from the learner (docs/wire_actor.md).
// @ts-check
import crypto from "node:crypto";
import fs from "node:fs";
import { parseArgs } from "node:util";
import { setTimeout as sleep } from "node:timers/promises";
import { CallError, Client, ConnectionLost, status } from "./client.js";
import * as wire from "./wire.js";

const EXIT = { done: 0, environmentFailed: 1, userError: 2, superseded: 3, noLearner: 4 };
const ATTEMPT_S = 4, FIRST_PAUSE_S = 0.1, LONGEST_PAUSE_S = 5, STOP_GRACE_MS = 4500;
const ENV_OUTPUT = ["reward", "done", "observation", "abandoned", "episode_step"];
const ARGUMENTS = ["env_ids", "run_ids", "", "raw_rewards", "successes"]; // "": the fields above.

/**
 * @typedef {{dtype: string, shape: number[]}} Spec of one environment's array, without batch
 *
 * @typedef {object} Step
 * @property {ArrayLike<number>} observation in C order
 * @property {number} reward
 * @property {boolean} terminated the episode is over
 * @property {boolean} truncated it would have gone on, but for a time limit
 * @property {number} [rawReward] the unshaped reward, if that differs
 * @property {boolean} [success] whether the episode reached its goal
 *
 * @typedef {object} Environment
 * @property {Spec} observation
 * @property {string} actions the action space as the learner names it, such as "2 choices from 0"
 * @property {() => ArrayLike<number>} reset begins an episode, returns its first observation
 * @property {(action: number[]) => Step} step
 *
 * @typedef {object} Config
 * @property {string} address "host:port" or "unix:/path"
 * @property {number} task index of this actor: its first environment is task * batchSize; -1: it
 *   asks the learner for environments
 * @property {number} batchSize
 * @property {number} connectTimeoutS
 * @property {number} reconnectTimeoutS
 * @property {string} [tokenFile]
 * @property {string} [tlsCa]
 * @property {string} [tlsCert]
 * @property {string} [tlsKey]
 */

/** What ends the actor, with an exit code. */
class Ended extends Error {
  constructor(/** @type {string} */ message, /** @type {number} */ code) {
    super(message);
    this.code = code;
  }
}

/** Calls an environment, and takes what it returns. @template T @param {() => T} call @returns {T} */
function ofEnvironment(call) {
  try {
    return call();
  } catch (/** @type {any} */ error) {
    if (error instanceof Ended) throw error;
    throw new Ended(`An environment failed: ${error.stack ?? error}`, EXIT.environmentFailed);
  }
}

/** k environments as one, with the learner's episode protocol. */
class Batch {
  constructor(/** @type {Environment[]} */ envs, /** @type {number} */ firstId) {
    this.envs = envs;
    this.ids = Int32Array.from(envs, (_, row) => firstId + row);
    const { dtype, shape } = envs[0].observation;
    this._size = shape.reduce((product, dimension) => product * dimension, 1);
    this.observation = new (wire.arrayType(dtype))(envs.length * this._size);
    this.reward = new Float32Array(envs.length);
    this.rawReward = new Float32Array(envs.length);
    this.success = new Float32Array(envs.length);
    this.done = new Uint8Array(envs.length);
    this.abandoned = new Uint8Array(envs.length);
    this.episodeStep = new Int32Array(envs.length).fill(-1); // -1: not yet reset.
    /** Whose last step was truncated: the next call resets them. */
    this._truncated = envs.map(() => false);
  }

  /** Begins a life: resets environments that have stepped since their last reset. */
  reset() {
    for (const zeroed of [this.reward, this.rawReward, this.done, this.abandoned]) zeroed.fill(0);
    this.success.fill(NaN);
    this.envs.forEach((_, row) => { if (this.episodeStep[row] !== 0) this._reset(row); });
  }

  /** Applies one action to each environment. */
  step(/** @type {number[][]} */ actions) {
    this.envs.forEach((env, row) => ofEnvironment(() => {
      this.done[row] = this.abandoned[row] = 0;
      if (this._truncated[row]) { // The action was for an episode that is over; its success stays.
        this.reward[row] = this.rawReward[row] = 0;
        this.done[row] = this.abandoned[row] = 1;
        this._reset(row);
        return;
      }
      const step = env.step(actions[row]);
      this.reward[row] = step.reward;
      this.rawReward[row] = step.rawReward ?? step.reward;
      this.success[row] = step.success === undefined ? NaN : Number(step.success);
      this.episodeStep[row] += 1;
      if (step.terminated) {
        this.done[row] = 1;
        this._reset(row);
      } else {
        this._truncated[row] = step.truncated;
        this._write(row, step.observation);
      }
    }));
  }

  /** The arguments of the learner's `inference`. @returns {wire.Tensor[]} */
  tensors(/** @type {bigint} */ runId) {
    const k = this.envs.length;
    const { dtype, shape } = this.envs[0].observation;
    const row = (/** @type {string} */ type, /** @type {any} */ data) =>
      ({ dtype: type, shape: [k], data });
    return [
      row("int32", this.ids), row("int64", new BigInt64Array(k).fill(runId)),
      row("float32", this.reward), row("bool", this.done),
      { dtype, shape: [k, ...shape], data: this.observation },
      row("bool", this.abandoned), row("int32", this.episodeStep),
      row("float32", this.rawReward), row("float32", this.success),
    ];
  }

  _reset(/** @type {number} */ row) {
    this._truncated[row] = false;
    this.episodeStep[row] = 0;
    ofEnvironment(() => this._write(row, this.envs[row].reset()));
  }

  _write(/** @type {number} */ row, /** @type {ArrayLike<number>} */ observation) {
    if (observation.length !== this._size) {
      throw new Ended(`An observation has ${observation.length} elements, not ${this._size}.`,
        EXIT.userError);
    }
    const isBig = typeof this.observation[0] === "bigint";
    this.observation.set(isBig ? Array.from(observation, BigInt) : observation, row * this._size);
  }
}

/** Throws `Ended` if the environment does not fit the learner. */
function check(/** @type {Client} */ client, /** @type {Environment} */ env) {
  const refuse = (/** @type {string} */ message) => { throw new Ended(message, EXIT.userError); };
  const inference = client.function("inference");
  const output = inference?.arguments.tuple?.[2]?.namedtuple;
  if (!inference || String(output?.fields) !== String(ENV_OUTPUT)) {
    return refuse("The server is not a learner of this version: no such function `inference`.");
  }
  for (const [i, { tensor }] of inference.arguments.tuple.entries()) {
    if (i !== 2 && (i >= ARGUMENTS.length || tensor?.name !== ARGUMENTS[i])) {
      refuse(`The learner asks for \`${tensor?.name ?? "a structure"}\`, which this actor does not `
        + "know there.");
    }
  }
  const text = (/** @type {any} */ s) => s ? `${s.dtype}[${s.shape}]` : "several parts";
  const expected = output.values[2].tensor;
  const wanted = text(expected && { dtype: expected.dtype, shape: expected.shape.slice(1) });
  if (wanted !== text(env.observation)) {
    refuse(`The learner expects observations ${wanted}, this environment has `
      + `${text(env.observation)}. Start both for the same environment.`);
  }
  const actions = client.description.status?.action_space ?? env.actions;
  if (actions !== env.actions) {
    refuse(`The learner's actions are ${actions}, this environment takes ${env.actions}.`);
  }
  return inference;
}

/** Rows of the reply, one array of numbers per environment. @returns {number[][]} */
function rowsOf(/** @type {wire.Tensor[]} */ outputs, /** @type {number} */ k) {
  if (outputs.length !== 1 || outputs[0].shape[0] !== k) {
    throw new CallError(status.INTERNAL, "the reply does not fit");
  }
  const [{ data }] = outputs;
  const numbers = Array.from(/** @type {any} */ (data), Number);
  const size = numbers.length / k;
  return Array.from({ length: k }, (_, row) => numbers.slice(row * size, (row + 1) * size));
}

class Actor {
  /** @param {(id: number) => Environment} createEnv @param {Config} config */
  constructor(createEnv, config) {
    this._config = config;
    const first = Math.max(config.task, 0) * config.batchSize;
    const envs = Array.from({ length: config.batchSize }, (_, row) =>
      ofEnvironment(() => createEnv(first + row)));
    this._batch = new Batch(envs, first);
    this._hasIds = config.task >= 0;
    this._stopped = new AbortController();
    /** @type {Client | null} */
    this._client = null;
    this._lastAnswer = performance.now();
    this._timeoutS = config.connectTimeoutS;
    this._failures = 0;
  }

  /** Makes `run` return soon. */
  stop() {
    this._stopped.abort();
    this._client?.close();
  }

  /**
   * Runs lives until training is done or `stop`.
   * @throws {Ended} the actor cannot continue
   */
  async run() {
    while (!this._stopped.signal.aborted) {
      const began = performance.now();
      this._batch.reset();
      this._lastAnswer += performance.now() - began; // The learner waits for long resets.
      try {
        await this._life();
      } catch (error) {
        if (this._stopped.signal.aborted) break;
        if (error instanceof CallError && error.code === status.OUT_OF_RANGE) return;
        const known = [CallError, ConnectionLost, wire.WireError].some((c) => error instanceof c);
        if (!known) throw error;
        this._client?.close(); // Not after the pause: the learner counts connections.
        await this._pause(error);
      } finally {
        this._client?.close();
      }
    }
  }

  /** From connecting to the first error. */
  async _life() {
    const { address, tokenFile, tlsCa, tlsCert, tlsKey } = this._config;
    // Read again each time: secrets may change while the learner is away.
    const attemptS = Math.min(ATTEMPT_S, Math.max(this._remainingS(), 0.1));
    let client;
    try {
      const security = { token: readToken(tokenFile), tlsCa, tlsCert, tlsKey };
      client = await Client.connect(address, security, 1000 * attemptS);
    } catch (/** @type {any} */ error) {
      if (error.code === status.FAILED_PRECONDITION) throw new Ended(error.message, EXIT.userError);
      if (error.syscall) throw new ConnectionLost(error.message); // No token, for now.
      throw error;
    }
    this._client = client;
    const inference = check(client, this._batch.envs[0]);
    if (!this._hasIds) await this._claim(client);
    const runId = crypto.randomBytes(8).readBigInt64LE() & ((1n << 63n) - 1n) || 1n;
    const taken = inference.arguments.tuple.length + ENV_OUTPUT.length - 1;
    for (let calls = 0; !this._stopped.signal.aborted; ++calls) {
      let outputs;
      try {
        outputs = await client.call(inference.index, this._batch.tensors(runId).slice(0, taken));
      } finally {
        if (calls) this._lastAnswer = performance.now();
      }
      if (!calls) {
        console.error(`Environments ${this._batch.ids.join(", ")}: learner at ${address}.`);
        this._lastAnswer = performance.now();
        this._timeoutS = this._config.reconnectTimeoutS;
        this._failures = 0;
      }
      this._batch.step(rowsOf(outputs, this._batch.envs.length));
    }
  }

  /** Asks the learner for environments. */
  async _claim(/** @type {Client} */ client) {
    const { ids } = this._batch;
    const claim = client.function("claim");
    if (!claim) {
      throw new Ended("This learner does not hand out environments: give --task=N.", EXIT.userError);
    }
    const count = { dtype: "int32", shape: [], data: Int32Array.of(ids.length) };
    const [claimed] = await client.call(claim.index, [count]);
    if (claimed?.data.length !== ids.length) {
      throw new ConnectionLost(`fewer than ${ids.length} of the learner's environments (--num_envs) are free; `
        + "those of a dead actor become free after a minute");
    }
    ids.set(/** @type {Int32Array} */ (claimed.data));
    this._hasIds = true;
  }

  _remainingS() {
    return this._timeoutS - (performance.now() - this._lastAnswer) / 1000;
  }

  /** Waits before the next attempt; throws `Ended` if there should be none. */
  async _pause(/** @type {any} */ error) {
    const pauseS = Math.min(FIRST_PAUSE_S * 2 ** this._failures++, LONGEST_PAUSE_S);
    const { address } = this._config;
    this._endIfFatal(error, pauseS);
    if (this._remainingS() <= 0) {
      throw new Ended(`No learner at ${address} for ${this._timeoutS} s (${error.message}). Check `
        + "that it is running and that --server_address is right.", EXIT.noLearner);
    }
    if (this._failures === 1) console.error(`No learner at ${address}: ${error.message}`);
    // Many actors lose the same learner at once and must not all return at once.
    const ms = 1000 * Math.min(pauseS * (0.5 + Math.random() / 2), this._remainingS());
    await sleep(ms, undefined, { signal: this._stopped.signal }).catch(() => undefined);
  }

  _endIfFatal(/** @type {any} */ error, /** @type {number} */ pauseS) {
    const { UNAUTHENTICATED, PERMISSION_DENIED, INVALID_ARGUMENT, UNIMPLEMENTED } = status;
    const ids = this._batch.ids.join(", ");
    if (error.code === status.FAILED_PRECONDITION) {
      if (this._config.task < 0) { // They were silent for too long.
        this._hasIds = false;
        return;
      }
      throw new Ended(`${error.message} Give every actor its own --task.`, EXIT.superseded);
    }
    if (error.code === PERMISSION_DENIED || error.code === UNAUTHENTICATED) {
      // A new token may not have been copied yet.
      const rotating = error.code === UNAUTHENTICATED && this._config.tokenFile;
      if (rotating && this._remainingS() > pauseS) return;
      throw new Ended(`The learner refuses this actor: ${error.message}. Start both with the same `
        + "--auth_token_file.", EXIT.userError);
    }
    if (error.code === INVALID_ARGUMENT || error.code === UNIMPLEMENTED) {
      throw new Ended(`The learner rejects the steps of environments ${ids}: ${error.message}.`,
        EXIT.userError);
    }
  }
}

/** The token in a file, if there is a file. */
function readToken(/** @type {string | undefined} */ path) {
  if (!path) return undefined;
  const token = fs.readFileSync(path, "utf8").trim();
  if (/^[ -~]{1,4096}$/.test(token)) return token;
  // Not gRPC's error, which would show the secret. The file may be being replaced.
  throw new ConnectionLost(
    `${path} is not a token: that has 1 to 4096 characters of visible ASCII and spaces`);
}

/** Reads the flags of an actor. @returns {Config} */
function configFromFlags(argv = process.argv.slice(2)) {
  const defaults = {
    server_address: "localhost:8686", task: "-1", env_batch_size: "1", connect_timeout_s: "600",
    reconnect_timeout_s: "600",
  };
  const paths = ["auth_token_file", "tls_ca", "tls_cert", "tls_key"];
  const options = Object.fromEntries(
    [...Object.keys(defaults), ...paths].map((name) => [name, { type: "string" }]));
  const { values } = parseArgs({ args: argv, options: /** @type {any} */ (options) });
  /** @type {Record<string, any>} */
  const given = { ...defaults, ...values };
  const number = (/** @type {string} */ name, /** @type {number} */ least) => {
    const value = given[name].trim() ? Number(given[name]) : NaN; // Number("") is 0.
    if (!(value >= least)) throw new Error(`--${name} must be a number, at least ${least}.`);
    return value;
  };
  const integer = (/** @type {string} */ name, /** @type {number} */ least) => {
    const value = number(name, least);
    if (!Number.isInteger(value)) throw new Error(`--${name} must be an integer.`);
    return value;
  };
  for (const name of paths) if (given[name]) fs.accessSync(given[name], fs.constants.R_OK);
  const { tls_ca: ca, tls_cert: cert, tls_key: key } = given;
  if (!cert !== !key || (cert && !ca)) {
    throw new Error("--tls_cert and --tls_key go together, and with --tls_ca.");
  }
  readToken(given.auth_token_file);
  return {
    address: given.server_address, task: integer("task", -1),
    batchSize: integer("env_batch_size", 1),
    connectTimeoutS: number("connect_timeout_s", 0),
    reconnectTimeoutS: number("reconnect_timeout_s", 0), tokenFile: given.auth_token_file,
    tlsCa: ca, tlsCert: cert, tlsKey: key,
  };
}

/**
 * The main program of an actor: reads its flags, runs it and exits with its exit code.
 * @param {(id: number) => Environment} createEnv
 */
async function main(createEnv) {
  try {
    const config = configFromFlags();
    const actor = new Actor(createEnv, config);
    for (const signal of ["SIGTERM", "SIGINT"]) {
      process.once(signal, () => {
        actor.stop();
        setTimeout(() => process.exit(EXIT.done), STOP_GRACE_MS).unref();
      });
    }
    await actor.run();
    process.exit(EXIT.done); // Environments may hold processes or sockets.
  } catch (error) {
    const { code, message } = /** @type {any} */ (error);
    console.error(`error: ${message}`);
    process.exit(error instanceof Ended ? Number(code) : EXIT.userError);
  }
}

export { Actor, Batch, EXIT, Ended, configFromFlags, main };
