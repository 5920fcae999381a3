import type { AgentStep, AgentStepControl, AgentStepEnd } from './agent-port.js';
import { PIECE_BYTES, type AgentMessage, type GatewayMessage } from './messages.js';

/** So much input may be under way to a command that does not read it; the rest waits here. */
const WINDOW_BYTES = 1024 * 1024;

export interface StepListener {
  readonly output: (stream: 'stdout' | 'stderr', bytes: Buffer) => void;
  readonly ended: (end: AgentStepEnd) => void;
}

type StepMessage = Exclude<AgentMessage, { readonly type: 'pong' }>;

/** A command at an agent, as the gateway sees it. Ends once, whatever the agent says after that. */
export class RemoteStep implements AgentStepControl {
  readonly #step: AgentStep;
  readonly #on: StepListener;
  readonly #send: (message: GatewayMessage) => void;
  #ended = false;
  #outputBytes = 0;
  #waiting: Buffer[] = [];
  #underWayBytes = 0;
  #inputEnds = false;
  #inputEndSent = false;
  #onRoom: (() => void)[] = [];

  constructor(step: AgentStep, on: StepListener, send: (message: GatewayMessage) => void) {
    this.#step = step;
    this.#on = on;
    this.#send = send;
  }

  write(bytes: Uint8Array): void {
    if (this.#ended || this.#inputEnds) return;
    for (let at = 0; at < bytes.length; at += PIECE_BYTES) {
      // A copy: the caller may use its buffer again.
      this.#waiting.push(Buffer.from(bytes.subarray(at, at + PIECE_BYTES)));
    }
    this.#sendInput();
  }

  inputTaken(): Promise<void> {
    if (this.#ended || this.#waiting.length === 0) return Promise.resolve();
    return new Promise((resolve) => this.#onRoom.push(resolve));
  }

  endInput(): void {
    if (this.#ended || this.#inputEnds) return;
    this.#inputEnds = true;
    this.#sendInput();
  }

  cancel(): void {
    if (!this.#ended) this.#send({ type: 'cancel', stepId: this.#step.stepId });
  }

  /** What its agent says of it. Gives in words what is wrong with that, or null. */
  take(message: StepMessage): string | null {
    switch (message.type) {
      case 'output':
        this.#outputBytes += message.data.length;
        if (this.#outputBytes > this.#step.outputLimitBytes) return 'more output than the limit of the step';
        this.#on.output(message.stream, message.data);
        return null;
      case 'inputTaken':
        this.#underWayBytes -= message.bytes;
        if (this.#underWayBytes < 0) return 'more input taken than was sent';
        this.#sendInput();
        return null;
      case 'ended': {
        const { exitCode, signal, stoppedBy, droppedBytes } = message;
        this.end({ kind: 'exited', exitCode, signal, stoppedBy, droppedBytes });
        return null;
      }
      case 'notStarted':
        this.end({ kind: 'notStarted', detail: message.detail });
        return null;
    }
  }

  end(end: AgentStepEnd): void {
    if (this.#ended) return;
    this.#ended = true;
    this.#waiting = [];
    this.#tellRoom();
    this.#on.ended(end);
  }

  #sendInput(): void {
    const { stepId } = this.#step;
    while (this.#underWayBytes < WINDOW_BYTES) {
      const piece = this.#waiting.shift();
      if (piece === undefined) break;
      this.#underWayBytes += piece.length;
      this.#send({ type: 'input', stepId, data: piece.toString('base64') });
    }
    if (this.#waiting.length > 0) return;
    if (this.#inputEnds && !this.#inputEndSent) {
      this.#inputEndSent = true;
      this.#send({ type: 'endInput', stepId });
    }
    this.#tellRoom();
  }

  #tellRoom(): void {
    for (const tell of this.#onRoom.splice(0)) tell();
  }
}
