import type { StepId, TaskId } from '../machines/vocabulary.js';
import type { CallsAnswer, SessionCall } from './session-api.js';
import { Waiters } from './waiters.js';

type Numbered = CallsAnswer['calls'][number];

interface Entry extends Numbered {
  /** Characters of it as JSON. */
  readonly size: number;
  /** It has been in an answer: the worker may have acted on it. */
  given: boolean;
}

/** Beyond these a worker does not ask for its calls any more. */
const CALLS_MAX = 4096;
const SIZE_MAX = 32 * 1024 * 1024;
/** When the calls of an answer have come to this, the others wait for the next one. */
const ANSWER_SIZE = 1024 * 1024;

const stepOf = (call: SessionCall): StepId => (call.type === 'step' ? call.request.stepId : call.stepId);

/** What is asked of one worker, numbered from 1. A call stays until the worker says that it has taken it up. */
export class Mailbox {
  readonly waiters = new Waiters();
  #entries: Entry[] = [];
  #size = 0;
  #seq = 0;

  /** False: it is full, and nothing was added. */
  push(call: SessionCall): boolean {
    const size = JSON.stringify(call).length;
    if (this.#entries.length >= CALLS_MAX || this.#size + size > SIZE_MAX) return false;
    this.#seq += 1;
    this.#entries.push({ seq: this.#seq, call, size, given: false });
    this.#size += size;
    this.waiters.wake();
    return true;
  }

  /** Drops what the worker has taken up: everything up to `after`. */
  confirm(after: number): void {
    this.#keep(({ seq }) => seq > after);
  }

  /** The oldest ones, as many as fit into an answer; the same ones again until they are confirmed. */
  give(): readonly Numbered[] {
    const given: Numbered[] = [];
    let size = 0;
    for (const entry of this.#entries) {
      if (size >= ANSWER_SIZE) break;
      size += entry.size;
      entry.given = true;
      given.push({ seq: entry.seq, call: entry.call });
    }
    return given;
  }

  /** Whether a call of this kind for the step waits to be taken up. */
  has(type: SessionCall['type'], stepId: StepId): boolean {
    return this.#entries.some(({ call }) => call.type === type && stepOf(call) === stepId);
  }

  /** Takes back a step that has never been in an answer; false: the worker may have acted on it. */
  withdraw(stepId: StepId): boolean {
    const isUntold = this.#entries.some(({ call, given }) => call.type === 'step' && stepOf(call) === stepId && !given);
    if (isUntold) this.#keep(({ call }) => stepOf(call) !== stepId);
    return isUntold;
  }

  /** Drops everything about a session; gives the steps that the worker has never been told of. */
  forget(taskId: TaskId): ReadonlySet<StepId> {
    const untold = new Set<StepId>();
    for (const { call, given } of this.#entries) {
      if (call.taskId === taskId && call.type === 'step' && !given) untold.add(call.request.stepId);
    }
    this.#keep(({ call }) => call.taskId !== taskId);
    return untold;
  }

  #keep(wanted: (entry: Entry) => boolean): void {
    this.#entries = this.#entries.filter(wanted);
    this.#size = this.#entries.reduce((sum, { size }) => sum + size, 0);
  }
}
