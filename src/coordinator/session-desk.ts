import { isDeepStrictEqual } from 'node:util';
import type { Epoch, StepId, TaskId } from '../machines/vocabulary.js';
import { answer, no, type Answer } from './problems.js';
import type {
  CallsAnswer,
  CallsRequest,
  SessionReportAnswer,
  SessionView,
  StdinPiece,
  StdinTaken,
  StepAccepted,
  StepCancelled,
  StepEnd,
  StepNews,
} from './session-api.js';
import { PIECE_COST_MAX } from './session-buffer.js';
import { Mailbox } from './session-mailbox.js';
import { PassedStep, type StepOrigin } from './session-step.js';

export interface DeskLimits {
  /** Steps of one session that are under way. */
  readonly openPerSession: number;
  /** Steps of one session that have ended and are remembered. */
  readonly endedPerSession: number;
  /** Steps of all sessions together. */
  readonly steps: number;
  /** Output of one step, of one session, and of all, that nobody has read yet, bytes. Its worker keeps the rest. */
  readonly unreadPerStep: number;
  readonly unreadPerSession: number;
  readonly unread: number;
  /** Standard input of one step that its command has not taken, bytes. */
  readonly stdin: number;
  /** How long a step that has ended is remembered after it was last asked for. */
  readonly keepMs: number;
  readonly keepAfterSessionMs: number;
  /** How long the worker of a session that is over may still say how its steps ended. */
  readonly lastWordMs: number;
  /** A step that nobody has followed for so long is asked to end; one that its worker has not taken up is withdrawn. */
  readonly unfollowedMs: number;
  readonly withdrawMs: number;
}

const MIB = 1024 * 1024;
export const DESK_LIMITS: DeskLimits = {
  openPerSession: 64,
  endedPerSession: 64,
  steps: 4096,
  unreadPerStep: 4 * MIB,
  unreadPerSession: 32 * MIB,
  unread: 256 * MIB,
  stdin: MIB,
  keepMs: 10 * 60_000,
  keepAfterSessionMs: 60_000,
  lastWordMs: 15_000,
  unfollowedMs: 15 * 60_000,
  withdrawMs: 60_000,
};

interface HeldView {
  readonly epoch: Epoch;
  readonly view: SessionView;
}

interface Session {
  readonly steps: Map<StepId, PassedStep>;
  view: HeldView | null;
  /** Monotonic ms; null: it goes on. */
  overAtMs: number | null;
}

/** Who may speak for a session: the holder of its newest lease, also after its end, or nobody while it waits. */
export interface Holder {
  readonly workerId: string;
  readonly epoch: Epoch;
}

/**
 * Where people's steps and what workers say of them meet. In memory, for one life of the coordinator: the session's own
 * log is with its worker, and whoever asks for a step again under its id gets it again. All times are monotonic ms.
 */
export class SessionDesk {
  /** Tells one life of the coordinator from the next. */
  readonly id: string;
  readonly #limits: DeskLimits;
  readonly #mailboxes = new Map<string, Mailbox>();
  readonly #sessions = new Map<TaskId, Session>();

  constructor(id: string, limits: DeskLimits = DESK_LIMITS) {
    this.id = id;
    this.#limits = limits;
  }

  /** Steps under way. */
  get openSteps(): number {
    return this.#steps().filter((step) => !step.hasEnded).length;
  }

  mailboxOf(workerId: string): Mailbox {
    const known = this.#mailboxes.get(workerId) ?? new Mailbox();
    this.#mailboxes.set(workerId, known);
    return known;
  }

  /** What a worker has not taken up; null: nothing. */
  calls(workerId: string, { desk, after }: CallsRequest): CallsAnswer | null {
    const mailbox = this.mailboxOf(workerId);
    // Numbers of another life say nothing about these.
    if (desk === this.id) mailbox.confirm(after);
    if (desk === null) this.#askAgain(workerId, mailbox);
    const calls = mailbox.give();
    return calls.length === 0 ? null : { desk: this.id, calls: [...calls] };
  }

  /** A worker that begins anew may have lost what it had taken up: it says how those steps ended, or runs them now. */
  #askAgain(workerId: string, mailbox: Mailbox): void {
    for (const { origin, hasEnded, id } of this.#steps()) {
      if (origin.workerId !== workerId || hasEnded || mailbox.has('step', id)) continue;
      const { taskId, by, request } = origin;
      mailbox.push({ type: 'step', taskId, by, request });
    }
  }

  /** What its worker says of a session; also the last words about one that is over. */
  putView(taskId: TaskId, held: HeldView, isOver: boolean, nowMs: number): void {
    const session = this.#session(taskId);
    session.view = held;
    if (isOver) session.overAtMs ??= nowMs;
  }

  viewOf(taskId: TaskId): HeldView | null {
    return this.#sessions.get(taskId)?.view ?? null;
  }

  stepOf(taskId: TaskId, stepId: StepId): PassedStep | null {
    return this.#sessions.get(taskId)?.steps.get(stepId) ?? null;
  }

  /** Asked for twice, it is the same step; with another command under its id it is refused. */
  ask(origin: StepOrigin, nowMs: number): Answer<StepAccepted> {
    const { taskId, workerId, by, askedBy, request } = origin;
    const { stepId } = request;
    const known = this.stepOf(taskId, stepId);
    if (known !== null) {
      if (known.origin.askedBy === askedBy && isDeepStrictEqual(known.origin.request, request)) {
        known.touchedAtMs = nowMs;
        return answer({ stepId, created: false, epoch: known.origin.epoch });
      }
      return no('key_reused', `${stepId} is another command, or somebody else's`, 'use a new id for a new step');
    }
    const full = this.#makeRoom(taskId);
    if (full !== null) return full;
    if (!this.mailboxOf(workerId).push({ type: 'step', taskId, by, request })) return BUSY_WORKER;
    this.#session(taskId).steps.set(stepId, new PassedStep(origin, nowMs));
    return answer({ stepId, created: true, epoch: origin.epoch });
  }

  input(step: PassedStep, piece: StdinPiece): Answer<StdinTaken> {
    const { taskId, workerId } = step.origin;
    const bytes = Buffer.from(piece.data, 'base64');
    const fresh = step.newInput(piece.offset, bytes);
    if (fresh === null) {
      const at = String(step.stdinTaken);
      return no('invalid_request', `the input up to now ends at ${at}, and this begins later`, `go on from ${at}`);
    }
    const isNews = fresh.length > 0 || (piece.end && !step.stdinEnded);
    if (!isNews || step.hasEnded) return answer({ taken: Math.max(step.stdinTaken, piece.offset + bytes.length) });
    if (step.stdinEnded) return no('invalid_request', 'the input of this step has ended', 'start another step');
    const mailbox = this.mailboxOf(workerId);
    if (step.stdinUnderWay > this.#limits.stdin) return BUSY_INPUT;
    const offset = piece.offset + bytes.length - fresh.length;
    const rest = { offset, data: fresh.toString('base64'), end: piece.end };
    if (!mailbox.push({ type: 'stdin', taskId, stepId: step.id, piece: rest })) return BUSY_WORKER;
    step.noteInput(offset + fresh.length, piece.end, offset);
    return answer({ taken: offset + fresh.length });
  }

  /** Also a step that this life of the coordinator does not know: the worker may. */
  cancel(taskId: TaskId, stepId: StepId, workerId: string, by: string): Answer<StepCancelled> {
    const step = this.stepOf(taskId, stepId);
    if (step?.isOutOfReach === true) return OUT_OF_REACH;
    if (step?.hasEnded === true) return answer({ stepId, ended: true });
    const mailbox = this.mailboxOf(workerId);
    const isAsked = mailbox.has('cancel', stepId) || mailbox.push({ type: 'cancel', taskId, stepId, by });
    return isAsked ? answer({ stepId, ended: false }) : BUSY_WORKER;
  }

  /** What a worker says of a step; the caller has seen that its epoch is in force. null: nobody asks for it. */
  hear(news: StepNews, workerId: string, nowMs: number): SessionReportAnswer['taken'][number] {
    const step = this.stepOf(news.taskId, news.stepId);
    if (step?.origin.workerId !== workerId || step.origin.epoch !== news.epoch) return null;
    const ofSession = [...(this.#sessions.get(news.taskId)?.steps.values() ?? [])];
    const unread = ofSession.reduce((sum, { cost }) => sum + cost, 0);
    const { unreadPerStep, unreadPerSession } = this.#limits;
    const room = Math.min(unreadPerStep - step.cost, unreadPerSession - unread, this.#roomForAll());
    return step.hear(news, room, nowMs);
  }

  /**
   * The lease of a session has changed, or the session is over. Steps that were asked of another incarnation end here:
   * what was never handed out was not started; of the others nobody can say. The last holder of a session that is over
   * has a moment to say it.
   */
  settle(taskId: TaskId, holder: Holder | null, isOver: boolean, nowMs: number): void {
    const session = this.#sessions.get(taskId);
    if (session === undefined) return;
    if (isOver) session.overAtMs ??= nowMs;
    for (const step of session.steps.values()) {
      if (step.hasEnded) continue;
      const { workerId, epoch } = step.origin;
      const isHolders = holder?.workerId === workerId && holder.epoch === epoch;
      if (isHolders && !isOver) continue;
      for (const id of this.mailboxOf(workerId).forget(taskId)) session.steps.get(id)?.finish(NOT_STARTED, nowMs);
      if (isHolders) step.lastWordAtMs ??= nowMs + this.#limits.lastWordMs;
      else step.finish(NOBODY_KNOWS, nowMs);
    }
  }

  /** Gives up waiting for last words; forgets what nobody asks for. */
  tick(nowMs: number): void {
    const { keepMs, keepAfterSessionMs } = this.#limits;
    for (const [taskId, session] of this.#sessions) {
      for (const [stepId, step] of session.steps) {
        if (step.lastWordAtMs !== null && step.lastWordAtMs <= nowMs) step.finish(NOBODY_KNOWS, nowMs);
        this.#giveUp(step, nowMs);
        const kept = session.overAtMs === null ? keepMs : keepAfterSessionMs;
        const isRead = step.waiters.size > 0;
        if (step.hasEnded && !isRead && nowMs - step.touchedAtMs >= kept) session.steps.delete(stepId);
      }
      const isOld = session.overAtMs !== null && nowMs - session.overAtMs >= keepMs;
      if (session.steps.size === 0 && (isOld || session.view === null)) this.#sessions.delete(taskId);
    }
  }

  /** Whoever asked has gone: nothing is started for nobody, and nothing goes on for nobody for ever. */
  #giveUp(step: PassedStep, nowMs: number): void {
    if (step.hasEnded || step.waiters.size > 0) return;
    const aloneMs = nowMs - step.touchedAtMs;
    const { taskId, workerId } = step.origin;
    const mailbox = this.mailboxOf(workerId);
    if (aloneMs >= this.#limits.withdrawMs && mailbox.withdraw(step.id)) step.finish(NOBODY_WAITED, nowMs);
    else if (aloneMs >= this.#limits.unfollowedMs && !mailbox.has('cancel', step.id)) {
      const minutes = String(Math.round(this.#limits.unfollowedMs / 60_000));
      mailbox.push({
        type: 'cancel',
        taskId,
        stepId: step.id,
        by: `the coordinator: nobody followed it for ${minutes} min`,
      });
      step.touchedAtMs = nowMs;
    }
  }

  /** Why nothing has come of a step so far, as far as that is known here. */
  waitingOf(step: PassedStep): string | null {
    const isHere = !step.hasEnded && this.mailboxOf(step.origin.workerId).has('step', step.id);
    return isHere ? 'its worker has not taken the step up yet' : null;
  }

  /** null: one more step fits, perhaps after some that have been read to their end were forgotten. */
  #makeRoom(taskId: TaskId): Answer<never> | null {
    const mine = [...(this.#sessions.get(taskId)?.steps.values() ?? [])];
    const open = mine.filter((step) => !step.hasEnded);
    if (open.length >= this.#limits.openPerSession) {
      const message = `${String(open.length)} steps of ${taskId} are under way, as many as a session may have`;
      return no('too_many_steps', message, 'wait until one has ended, or cancel one');
    }
    const ended = mine.filter((step) => step.hasEnded);
    if (ended.length >= this.#limits.endedPerSession && !this.#forgetOne(ended)) {
      const message = `${String(ended.length)} steps of ${taskId} have ended, and nobody has read their output`;
      return no('too_many_steps', message, 'read it, or wait: it is forgotten after ten minutes');
    }
    const all = this.#steps();
    if (all.length >= this.#limits.steps && !this.#forgetOne(all)) {
      const message = `the coordinator passes on ${String(all.length)} steps already, as many as it may`;
      return no('too_many_steps', message, 'repeat it in a while');
    }
    return null;
  }

  /** What everybody's unread output leaves; what was read to its end makes way. */
  #roomForAll(): number {
    for (;;) {
      const all = this.#steps();
      const room = this.#limits.unread - all.reduce((sum, { cost }) => sum + cost, 0);
      if (room >= PIECE_COST_MAX || !this.#forgetOne(all.filter(({ cost }) => cost > 0))) return room;
    }
  }

  /**
   * Forgets the one that was read to its end the longest ago, or else that ended the longest ago with nobody reading;
   * false: there is none.
   */
  #forgetOne(steps: readonly PassedStep[]): boolean {
    const unread = steps.filter(({ hasEnded, waiters }) => hasEnded && waiters.size === 0);
    const read = unread.filter(({ isDelivered }) => isDelivered);
    const [first] = (read.length > 0 ? read : unread).sort((a, b) => a.touchedAtMs - b.touchedAtMs);
    if (first === undefined) return false;
    return this.#sessions.get(first.origin.taskId)?.steps.delete(first.id) ?? false;
  }

  #session(taskId: TaskId): Session {
    const known = this.#sessions.get(taskId) ?? { steps: new Map<StepId, PassedStep>(), view: null, overAtMs: null };
    this.#sessions.set(taskId, known);
    return known;
  }

  #steps(): readonly PassedStep[] {
    return [...this.#sessions.values()].flatMap(({ steps }) => [...steps.values()]);
  }
}

const BUSY_WORKER = no(
  'too_many_steps',
  'the worker of this session has not taken up what was asked of it before',
  'repeat it in a while; see whether the worker runs',
);
const OUT_OF_REACH = no(
  'no_allocation',
  'what became of this step nobody can say, and nobody can end it by itself any more',
  'it ends with its session at the latest: open-compute session stop',
);
const BUSY_INPUT = no('too_many_steps', 'the step has not read its input yet', 'repeat it in a moment');

const ended = (how: StepEnd['how'], detail: string): StepEnd => ({
  how,
  exitCode: null,
  signal: null,
  detail,
  droppedBytes: 0,
});
const NOT_STARTED = ended(
  'refused',
  "nothing was started: the session's job ended before its worker heard of the step",
);
const NOBODY_WAITED = ended(
  'refused',
  'nothing was started: whoever asked for it had gone before its worker took it up',
);
const NOBODY_KNOWS = ended(
  'unknown',
  "the session's job ended, or went to another worker: whether the command was started, and how far it came, nobody can say",
);
