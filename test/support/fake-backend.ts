import type {
  AttemptEnd,
  Backend,
  BackendTiming,
  CancelReply,
  CancelTarget,
  JobAnswer,
  NoAnswer,
  Observations,
  SeenState,
  SelfTest,
  StepReply,
  StepRequest,
  SubmitReply,
  SubmitRequest,
  WatchItem,
} from '../../src/backend.js';
import type { Handle, JobId, Source, Token } from '../../src/machines/vocabulary.js';
import type { Clock } from '../../src/runtime/clock.js';
import { flush } from './manual-clock.js';

export const TIMING: BackendTiming = { settleMs: 60_000, looks: 3, lossGraceMs: 60_000, lossLooks: 3 };

/** A job as the fake keeps it. `state` null: nobody lists it any more. */
export interface FakeJob {
  readonly handle: Handle;
  readonly token: Token;
  state: SeenState | null;
}

/** What the next submission meets: whether it lands, what is answered, and how long that takes. */
export interface SubmitPlan {
  readonly lands: boolean;
  readonly reply?: SubmitReply;
  readonly until?: Promise<void>;
}

const NO_ANSWER: NoAnswer = { kind: 'unreachable', detail: 'connection refused' };

/** A backend that keeps its jobs in memory and does what the test says. */
export class FakeBackend implements Backend {
  readonly name = 'fake';
  readonly site = 'here';
  readonly sources: readonly Source[] = ['queue', 'accounting'];
  readonly timing = TIMING;
  readonly jobs: FakeJob[] = [];
  readonly plans: SubmitPlan[] = [];
  readonly submissions: SubmitRequest[] = [];
  readonly cancels: (readonly Handle[])[] = [];
  readonly attemptsEnded: Token[] = [];
  readonly #clock: Clock;
  readonly #calls = { submit: 0, observe: 0, cancel: 0 };
  outage: 'none' | 'queue' | 'accounting' = 'none';
  obeysCancel = true;
  /** What the next polls wait for before they answer. */
  answersAfter: Promise<void> | null = null;
  /** False: it does not know whose the ids are. */
  cancellable = true;
  attemptAlive = false;
  stepAnswer: (request: StepRequest) => Promise<StepReply> = () =>
    Promise.resolve({ kind: 'refused', detail: 'the fake runs no steps' });
  selfTestAnswer: SelfTest = { kind: 'fit', report: {}, warnings: [] };

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** The jobs that carry this token, the oldest first. */
  of(token: Token): readonly FakeJob[] {
    return this.jobs.filter((job) => job.token === token);
  }

  /** Puts every job into this state; null takes them all away. */
  setAll(state: SeenState | null): void {
    for (const job of this.jobs) job.state = state;
  }

  land(token: Token, state: SeenState = { phase: 'Pending', waiting: 'queued' }): FakeJob {
    const id = String(1000 + this.jobs.length);
    const job: FakeJob = { handle: { id, cluster: null, submittedAtMs: this.#clock.nowMs() }, token, state };
    this.jobs.push(job);
    return job;
  }

  async selfTest(): Promise<SelfTest> {
    await flush();
    return this.selfTestAnswer;
  }

  prepare(): Promise<void> {
    return flush();
  }

  async submit(request: SubmitRequest): Promise<SubmitReply> {
    this.#calls.submit += 1;
    this.submissions.push(request);
    const plan = this.plans.shift() ?? { lands: true };
    await (plan.until ?? flush());
    const landed = plan.lands ? this.land(request.token) : null;
    if (plan.reply !== undefined) return plan.reply;
    return landed === null ? { ...NO_ANSWER, hint: null } : { kind: 'accepted', handle: landed.handle, notes: '' };
  }

  async endAttempt(token: Token): Promise<AttemptEnd> {
    await flush();
    if (this.attemptAlive) return { kind: 'alive', detail: 'it still runs' };
    this.attemptsEnded.push(token);
    return { kind: 'ended', how: 'nothing was left' };
  }

  async observe(items: readonly WatchItem[]): Promise<Observations> {
    this.#calls.observe += 1;
    await (this.answersAfter ?? flush());
    const jobs = new Map<JobId, JobAnswer>(items.map((item) => [item.jobId, this.#answer(item)]));
    return {
      jobs,
      outage: this.outage === 'none' ? null : NO_ANSWER,
      queueOutage: this.outage === 'queue' ? NO_ANSWER : null,
      oddities: [],
    };
  }

  mayCancel(): boolean {
    return this.cancellable;
  }

  async cancel(targets: readonly CancelTarget[]): Promise<CancelReply> {
    const handles = targets.map(({ handle }) => handle);
    this.#calls.cancel += 1;
    this.cancels.push(handles);
    await flush();
    if (this.outage === 'queue') return { asked: [], outage: NO_ANSWER };
    for (const job of this.obeysCancel ? this.jobs : []) {
      const isLive = job.state?.phase === 'Pending' || job.state?.phase === 'Running';
      if (isLive && handles.some(({ id }) => id === job.handle.id)) {
        job.state = { phase: 'Cancelled', reason: 'ADMIN_CANCELLED' };
      }
    }
    return { asked: handles, outage: null };
  }

  runStep(request: StepRequest): Promise<StepReply> {
    return this.stepAnswer(request);
  }

  callCounts(): Readonly<Record<string, number>> {
    return { ...this.#calls };
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  #answer({ token, handle }: WatchItem): JobAnswer {
    const listed = this.of(token).filter((job) => job.state !== null);
    const isLive = ({ state }: FakeJob): boolean => state?.phase === 'Pending' || state?.phase === 'Running';
    const ours = listed.find(isLive) ?? listed.find((job) => job.handle.id === handle?.id) ?? listed[0];
    if (this.outage === 'queue') return { kind: 'unanswered', detail: 'no answer', queueAbsent: false };
    const state = ours?.state ?? null;
    if (ours === undefined || state === null || (this.outage === 'accounting' && !isLive(ours))) {
      if (this.outage === 'accounting') return { kind: 'unanswered', detail: 'no accounting', queueAbsent: true };
      return { kind: 'absent', queue: 'absent', accounting: 'absent', limitEndsAtMs: null, detail: 'not here' };
    }
    return {
      kind: 'seen',
      handle: ours.handle,
      source: isLive(ours) ? 'queue' : 'accounting',
      state,
      why: '',
      warnings: [],
      diagnostics: {},
      duplicates: listed.filter((job) => job !== ours && isLive(job)).map((job) => job.handle),
    };
  }
}
