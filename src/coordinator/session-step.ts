import type { Epoch, StepId, TaskId } from '../machines/vocabulary.js';
import type {
  OutputQuery,
  SessionReportAnswer,
  StepEnd,
  StepNews,
  StepOutput,
  StepSizes,
  StepRequest,
} from './session-api.js';
import { StepBuffer, type Offsets } from './session-buffer.js';
import { Waiters } from './waiters.js';

type Taken = NonNullable<SessionReportAnswer['taken'][number]>;

/** Who asked for a step, and who holds the session's lease at that time. */
export interface StepOrigin {
  readonly taskId: TaskId;
  readonly epoch: Epoch;
  /** Credential id. */
  readonly workerId: string;
  /** Credential id and name of whoever asked. */
  readonly askedBy: string;
  readonly by: string;
  readonly request: StepRequest;
}

/** A step as the coordinator passes it on: what came from its worker, and how far its reader is. */
export class PassedStep {
  readonly origin: StepOrigin;
  readonly waiters = new Waiters();
  readonly #buffer = new StepBuffer();
  #notice: string | null = null;
  #noticeTaken = false;
  #end: StepEnd | null = null;
  #sizes: StepSizes = null;
  /** Whoever asked has been given the end. */
  isDelivered = false;
  /** Monotonic ms, of the last time that somebody asked or read, or that it ended. */
  touchedAtMs: number;
  /** Monotonic ms at which it ends as `unknown` if its worker says nothing more; null: its session goes on. */
  lastWordAtMs: number | null = null;
  /** Bytes of standard input; null: none since the coordinator knows of the step. */
  #stdin: number | null = null;
  stdinEnded = false;
  /** What the command has of it, as its worker said last; null: nothing said yet. */
  #stdinRead: number | null = null;
  #stdinBase = 0;

  constructor(origin: StepOrigin, nowMs: number) {
    this.origin = origin;
    this.touchedAtMs = nowMs;
  }

  get id(): StepId {
    return this.origin.request.stepId;
  }

  get hasEnded(): boolean {
    return this.#end !== null;
  }

  /** It may go on, and nobody can end it by itself. */
  get isOutOfReach(): boolean {
    return this.#end?.how === 'unknown';
  }

  get cost(): number {
    return this.#buffer.cost;
  }

  get stdinTaken(): number {
    return this.#stdin ?? 0;
  }

  /** Input that was taken from the user and has not come to the command yet, bytes. */
  get stdinUnderWay(): number {
    return this.stdinTaken - Math.max(this.#stdinBase, this.#stdinRead ?? 0);
  }

  /** Takes what continues the output and costs at most `room`; the end only with everything before it. */
  hear({ pieces, notice, stdinTaken, end, sizes }: StepNews, room: number, nowMs: number): Taken {
    this.#stdinRead = Math.max(this.#stdinRead ?? 0, stdinTaken);
    if (this.#end !== null) return this.#taken();
    if (notice !== null && !this.#noticeTaken) {
      this.#notice = notice;
      this.#noticeTaken = true;
    }
    const before = this.#buffer.cost;
    // The first one that is not taken ends it: the streams keep the order in which they were written.
    const all = pieces.every((piece) => this.#buffer.offer(piece, room - (this.#buffer.cost - before)));
    if (end !== null && all) this.finish(end, nowMs, sizes);
    else this.waiters.wake();
    return this.#taken();
  }

  finish(end: StepEnd, nowMs: number, sizes: StepSizes = null): void {
    if (this.#end !== null) return;
    this.#end = end;
    this.#sizes = sizes;
    this.touchedAtMs = nowMs;
    this.waiters.wake();
  }

  /**
   * What there is beyond what the reader has; null: nothing. Only whoever asked for the step moves it on: what they have
   * is dropped, and they are told the notice. Others look on.
   */
  read(query: OutputQuery, isAsker: boolean, nowMs: number): StepOutput | null {
    const read: Offsets = { stdout: query.stdout, stderr: query.stderr };
    if (isAsker) this.#buffer.confirm(read);
    const { pieces, isAll } = this.#buffer.after(read);
    const notice = isAsker ? this.#notice : null;
    const end = isAll ? this.#end : null;
    this.touchedAtMs = nowMs;
    if (pieces.length === 0 && notice === null && end === null) return null;
    if (isAsker) {
      this.#notice = null;
      if (end !== null) this.isDelivered = true;
    }
    return { pieces, notice, waiting: null, end, sizes: end === null ? null : this.#sizes };
  }

  /** The bytes of a piece of standard input that are new; null: it begins beyond what has come so far. */
  newInput(offset: number, bytes: Buffer): Buffer | null {
    const from = this.#stdin ?? offset;
    return offset > from ? null : bytes.subarray(Math.min(bytes.length, from - offset));
  }

  noteInput(offset: number, end: boolean, from: number): void {
    // What came before the coordinator knew of the step is not its to wait for.
    if (this.#stdin === null) this.#stdinBase = from;
    this.#stdin = offset;
    this.stdinEnded ||= end;
  }

  #taken(): Taken {
    return { ...this.#buffer.taken, ended: this.#end !== null };
  }
}
