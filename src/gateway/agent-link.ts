import type { Clock } from '../runtime/clock.js';
import type { AgentLink, AgentStep, AgentStepControl, RankId } from './agent-port.js';
import type { LineSocket } from './line-socket.js';
import { AgentMessage, LINE_MAX_BYTES, lineOf, readLine, type Hello } from './messages.js';
import { RemoteStep, type StepListener } from './remote-step.js';

export interface LivenessLimits {
  readonly pingEveryMs: number;
  /** So many pings without an answer, and the connection is given up. */
  readonly pingsMissedMax: number;
}

/** A registered agent: its commands, and whether it is alive. */
export class RegisteredAgent implements AgentLink {
  readonly id: RankId;
  readonly node: string;
  readonly workspace: boolean;
  readonly #lines: LineSocket;
  readonly #clock: Clock;
  readonly #over = new AbortController();
  readonly #steps = new Map<string, RemoteStep>();
  readonly #pings = new Map<number, () => void>();
  #pingsSent = 0;
  #pingsMissed = 0;

  /** Takes the connection over. Calls back once, when it is gone, after the steps' ends were told. */
  constructor(
    id: RankId,
    { node, workspace }: Hello,
    lines: LineSocket,
    clock: Clock,
    limits: LivenessLimits,
    onLeft: (detail: string) => void,
  ) {
    this.id = id;
    this.node = node;
    this.workspace = workspace;
    this.#lines = lines;
    this.#clock = clock;
    lines.read({
      limitBytes: LINE_MAX_BYTES,
      line: (text) => this.#take(text),
      tooLong: () => lines.close('its message was longer than a message can be'),
    });
    lines.onClosed((detail) => {
      this.#over.abort();
      for (const step of [...this.#steps.values()]) step.end({ kind: 'lost', detail });
      this.#steps.clear();
      onLeft(detail);
    });
    void this.#watch(limits);
  }

  async ping(timeoutMs: number): Promise<boolean> {
    if (this.#over.signal.aborted) return false;
    const id = this.#sendPing();
    const answered = new AbortController();
    const stop = (): void => answered.abort();
    let alive = false;
    this.#pings.set(id, () => {
      alive = true;
      stop();
    });
    this.#over.signal.addEventListener('abort', stop, { once: true });
    await this.#clock.sleep(timeoutMs, answered.signal);
    this.#over.signal.removeEventListener('abort', stop);
    this.#pings.delete(id);
    return alive;
  }

  start(step: AgentStep, on: StepListener): AgentStepControl {
    const { stepId } = step;
    if (this.#steps.has(stepId)) throw new Error(`${stepId} runs at rank ${this.id.rank} already`);
    const remote = new RemoteStep(step, on, (message) => this.#lines.send(lineOf(message)));
    if (this.#over.signal.aborted) {
      // Not before the caller has its control.
      queueMicrotask(() => remote.end({ kind: 'notStarted', detail: 'its agent is not connected any more' }));
      return remote;
    }
    this.#steps.set(stepId, remote);
    this.#lines.send(lineOf({ type: 'start', ...fieldsOf(step) }));
    return remote;
  }

  #take(text: string): void {
    const read = readLine(AgentMessage, text);
    if (!read.ok) {
      this.#lines.close(`its message makes no sense: ${read.why}`);
      return;
    }
    const { message } = read;
    if (message.type === 'pong') {
      this.#pingsMissed = 0;
      this.#pings.get(message.id)?.();
      return;
    }
    // Of a step that is over here: its agent could not know when it said so.
    const step = this.#steps.get(message.stepId);
    if (step === undefined) return;
    if (message.type === 'ended' || message.type === 'notStarted') this.#steps.delete(message.stepId);
    const wrong = step.take(message);
    if (wrong !== null) this.#lines.close(`its message makes no sense: ${wrong}`);
  }

  #sendPing(): number {
    const id = this.#pingsSent;
    this.#pingsSent += 1;
    this.#lines.send(lineOf({ type: 'ping', id }));
    return id;
  }

  /** Counts pings and not time: a worker that was stopped for a while must not take its own absence for the agents'. */
  async #watch({ pingEveryMs, pingsMissedMax }: LivenessLimits): Promise<void> {
    for (;;) {
      await this.#clock.sleep(pingEveryMs, this.#over.signal);
      if (this.#over.signal.aborted) return;
      if (this.#pingsMissed >= pingsMissedMax) {
        this.#lines.close(`no answer to ${pingsMissedMax} pings, ${pingEveryMs} ms apart`);
        return;
      }
      this.#pingsMissed += 1;
      this.#sendPing();
    }
  }
}

/** What goes over the wire, whatever else the caller's object holds. */
const fieldsOf = ({ stepId, argv, stdin, timeLimitMs, outputLimitBytes }: AgentStep): AgentStep => {
  return { stepId, argv, stdin, timeLimitMs, outputLimitBytes };
};
