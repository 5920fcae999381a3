import type { SessionCall, SessionReport, SessionView, StepNews } from '../../coordinator/session-api.js';
import type { Epoch, TaskId } from '../../machines/vocabulary.js';
import type { WorkerDeps } from '../context.js';
import type { SessionDeps } from './context.js';
import type { RunningStep } from './running-step.js';
import type { StepRunner } from './step-runner.js';

const RETRY_MS = { first: 500, max: 10_000 } as const;
/** What the coordinator has no room for now, because nobody reads it fast enough, is offered again: one piece, then all. */
const OFFER_MS = { first: 50, max: 2_000 } as const;
const CALLS_WAIT_MS = 20_000;
const PIECES_MAX = 64;
const STEPS_MAX = 50;
const VIEWS_MAX = 500;
/** Characters of the views in one report. */
const VIEWS_SIZE = 1024 * 1024;
/** Raw bytes in one report, of all steps: what the coordinator takes has a limit (`REPORT_BYTES_MAX`), as JSON. */
const REPORT_BYTES = 4 * 1024 * 1024;

/** A step in a report, and how often it had been asked for by then. */
interface Told {
  readonly step: RunningStep;
  readonly asked: number;
  readonly stdinTaken: number;
}

/** What the link has to know of the sessions. */
export interface LinkSource {
  readonly sessions: () => readonly TaskId[];
  /** With the epoch under which this worker speaks of it; null: it has had no job yet. */
  readonly viewOf: (taskId: TaskId) => { readonly epoch: Epoch; readonly view: SessionView } | null;
  readonly epochOf: (taskId: TaskId) => Epoch | null;
  readonly take: (call: SessionCall) => void;
  /** The coordinator has the newest view of the session. */
  readonly told: (taskId: TaskId) => void;
}

/** Carries steps from the coordinator to the sessions, and what sessions and steps have to say back. */
export class SessionLink {
  readonly #deps: WorkerDeps;
  readonly #port: SessionDeps['coordinator'];
  readonly #source: LinkSource;
  readonly #runner: StepRunner;
  /** What was told last, as text: a view is told when it is news. */
  readonly #told = new Map<TaskId, string>();
  readonly #dirty = new Set<TaskId>();
  #desk: string | null = null;
  #after = 0;
  #poke = new AbortController();
  #due = false;

  constructor(deps: WorkerDeps, port: SessionDeps['coordinator'], source: LinkSource, runner: StepRunner) {
    this.#deps = deps;
    this.#port = port;
    this.#source = source;
    this.#runner = runner;
  }

  /** The view of a session may be news. */
  changed(taskId: TaskId): void {
    this.#dirty.add(taskId);
    this.poke();
  }

  /** A step may have something to say. */
  poke(): void {
    this.#due = true;
    this.#poke.abort();
  }

  /** Runs until the signal aborts. */
  async run(signal: AbortSignal): Promise<void> {
    const stop = (): void => this.#poke.abort();
    signal.addEventListener('abort', stop, { once: true });
    await Promise.all([this.#takeCalls(signal), this.#report(signal)]);
  }

  async #takeCalls(signal: AbortSignal): Promise<void> {
    const stopped = (): boolean => signal.aborted;
    let waitMs: number = RETRY_MS.first;
    while (!signal.aborted) {
      const answer = await this.#port.calls({ desk: this.#desk, after: this.#after, waitMs: CALLS_WAIT_MS }, signal);
      if (stopped()) return;
      if (answer.kind !== 'answered') {
        await this.#deps.clock.sleep(waitMs, signal);
        waitMs = Math.min(RETRY_MS.max, waitMs * 2);
        continue;
      }
      waitMs = RETRY_MS.first;
      this.#meet(answer.value.desk);
      for (const { seq, call } of answer.value.calls) {
        if (seq <= this.#after) continue;
        this.#after = seq;
        this.#source.take(call);
      }
    }
  }

  /** A coordinator that has restarted knows nothing: it is told everything again, and numbers its calls anew. */
  #meet(desk: string): void {
    if (desk === this.#desk) return;
    this.#desk = desk;
    this.#after = 0;
    this.#told.clear();
    for (const taskId of this.#source.sessions()) this.changed(taskId);
  }

  async #report(signal: AbortSignal): Promise<void> {
    let waitMs: number = RETRY_MS.first;
    while (!signal.aborted) {
      if (!this.#due) await this.#rest(this.#untilOffer());
      this.#due = false;
      const { report, views, steps } = this.#news();
      if (report.views.length === 0 && report.steps.length === 0) continue;
      if (this.#dirty.size > 0) this.#due = true;
      const answer = await this.#port.report(report);
      if (answer.kind !== 'answered') {
        if (answer.kind === 'refused') this.#giveUp(steps, answer.detail);
        else for (const taskId of views.keys()) this.#dirty.add(taskId);
        this.#due = true;
        await this.#deps.clock.sleep(waitMs, signal);
        waitMs = Math.min(RETRY_MS.max, waitMs * 2);
        continue;
      }
      waitMs = RETRY_MS.first;
      this.#meet(answer.value.desk);
      for (const [taskId, text] of views) {
        this.#told.set(taskId, text);
        this.#source.told(taskId);
      }
      for (const [index, step] of steps.entries()) this.#taken(step, answer.value.taken[index] ?? null);
    }
  }

  /** What the coordinator will never take must not keep it from hearing of the rest. */
  #giveUp(steps: readonly Told[], detail: string): void {
    this.#deps.log.error({ detail, steps: steps.length }, 'the coordinator refuses what is reported of sessions');
    for (const { step } of steps) step.output.abandon();
  }

  async #rest(ms: number): Promise<void> {
    await this.#deps.clock.sleep(ms, this.#poke.signal);
    this.#poke = new AbortController();
  }

  #news(): {
    readonly report: SessionReport;
    readonly views: ReadonlyMap<TaskId, string>;
    readonly steps: readonly Told[];
  } {
    const views = new Map<TaskId, string>();
    const changed: SessionReport['views'] = [];
    let size = 0;
    for (const taskId of this.#dirty) {
      if (changed.length >= VIEWS_MAX || size >= VIEWS_SIZE) break;
      this.#dirty.delete(taskId);
      const told = this.#source.viewOf(taskId);
      const text = JSON.stringify(told);
      if (told === null || this.#told.get(taskId) === text) continue;
      views.set(taskId, text);
      size += text.length;
      changed.push(told);
    }
    const steps: Told[] = [];
    const news: StepNews[] = [];
    const nowMs = this.#deps.clock.monotonicMs();
    let roomBytes = REPORT_BYTES;
    for (const step of this.#runner.all()) {
      if (steps.length >= STEPS_MAX || roomBytes <= 0) break;
      const epoch = this.#source.epochOf(step.taskId);
      if (!step.wanted || epoch === null || !hasNews(step) || step.offer.atMs > nowMs) continue;
      const pieces = step.output.pieces(step.offer.waitMs > 0 ? 1 : PIECES_MAX, roomBytes);
      for (const { data } of pieces) roomBytes -= data.length;
      const { taskId, stepId, notice } = step;
      const stdinTaken = step.input.takenBytes;
      steps.push({ step, asked: step.asked, stdinTaken: step.input.takenBytes });
      // The end comes with the last of what it wrote, never before.
      const end = pieces.length === step.output.count ? step.end : null;
      news.push({
        taskId,
        epoch,
        stepId,
        pieces: [...pieces],
        notice,
        stdinTaken,
        end,
        sizes: end === null || !step.isOurs ? null : { ...step.output.sizes },
      });
    }
    return { report: { views: changed, steps: news }, views, steps };
  }

  #taken(
    { step, asked, stdinTaken }: Told,
    taken: { readonly stdout: number; readonly stderr: number; readonly ended: boolean } | null,
  ): void {
    if (taken === null) {
      // Nobody asks for it any more, or not yet again; who does, or has since this was sent, is told the rest.
      if (step.asked === asked) step.wanted = false;
      return;
    }
    step.notice = null;
    step.stdinTold = stdinTaken;
    const moved = step.output.taken(taken);
    if (taken.ended) this.#runner.forget(step.stepId);
    if (!hasNews(step) || moved) step.offer = { atMs: 0, waitMs: 0 };
    else {
      const waitMs = Math.min(OFFER_MS.max, Math.max(OFFER_MS.first, step.offer.waitMs * 2));
      step.offer = { atMs: this.#deps.clock.monotonicMs() + waitMs, waitMs };
    }
    if (hasNews(step) && step.offer.waitMs === 0) this.#due = true;
  }

  /** Until something is to be offered again, ms. */
  #untilOffer(): number {
    const nowMs = this.#deps.clock.monotonicMs();
    let waitMs = CALLS_WAIT_MS;
    for (const step of this.#runner.all())
      if (step.wanted && hasNews(step)) waitMs = Math.min(waitMs, Math.max(0, step.offer.atMs - nowMs));
    return waitMs;
  }
}

const hasNews = (step: RunningStep): boolean =>
  !step.output.isEmpty || step.end !== null || step.notice !== null || step.input.takenBytes !== step.stdinTold;
