import { LEAVE_RUNNING } from '../../backend.js';
import type { SessionCall, StdinPiece, StepRequest } from '../../coordinator/session-api.js';
import { clip } from '../../events/schema-parts.js';
import type { AgentLink, AgentStepEnd } from '../../gateway/agent-port.js';
import { contextOf, phaseOf, type Job } from '../../machines/job-aggregate.js';
import { sessionContextOf } from '../../machines/session-aggregate.js';
import type { StepEnd } from '../../machines/session-events.js';
import type { StepId, TaskId } from '../../machines/vocabulary.js';
import type { WorkerDeps } from '../context.js';
import type { SessionBook } from './session-book.js';
import { admission, type Admission } from './step-admission.js';
import { runningStep, type RunningStep } from './running-step.js';
import { OutputBudget } from './step-output.js';
import { endOfAgent, endOfReply, NO_END_KNOWN, outOfSight, refusal, requested } from './step-words.js';

/** A step that was asked for while a rank is on its way back (its connection broke, the worker restarted) waits for it. */
const READY_WAIT_MS = 30_000;
/** Typing is noted as a user's activity this often. */
const ACTIVITY_EVERY_MS = 60_000;
/** What nobody takes is forgotten after this time. */
const KEEP_ENDED_MS = 1_800_000;
const OUTPUT_BUDGET_BYTES = 256 * 1024 * 1024;
/** An agent that does not answer for so long is not given a command. */
const AGENT_ANSWERS_MS = 5_000;

/** A step as it is asked for. */
type Asked = Pick<Extract<SessionCall, { type: 'step' }>, 'request' | 'by'>;

/** What the runner has to know of the rest. */
export interface StepSurroundings {
  readonly job: (taskId: TaskId) => Job | null;
  readonly link: (taskId: TaskId, rank: number) => AgentLink | null;
  /** Something is to be reported. */
  readonly onNews: () => void;
  /** Resolves at the next change of the session, at the latest after so many ms. */
  readonly changed: (taskId: TaskId, withinMs: number) => Promise<void>;
}

/** Runs the steps of this worker's sessions: inside the allocation that is held, or by a rank's agent. */
export class StepRunner {
  readonly #deps: WorkerDeps;
  readonly #book: SessionBook;
  readonly #around: StepSurroundings;
  readonly #steps = new Map<StepId, RunningStep>();
  readonly #budget = new OutputBudget(OUTPUT_BUDGET_BYTES);
  readonly #activityAtMs = new Map<TaskId, number>();
  #leaving = false;

  constructor(deps: WorkerDeps, book: SessionBook, around: StepSurroundings) {
    this.#deps = deps;
    this.#book = book;
    this.#around = around;
  }

  all(): IterableIterator<RunningStep> {
    return this.#steps.values();
  }

  /** Closes the steps of a session that this process does not run: it can not speak for them, and says so. */
  async disown(taskId: TaskId, why: string, holdsNodes: boolean): Promise<void> {
    const running = new Set([...this.#steps.values()].filter(({ end }) => end === null).map(({ stepId }) => stepId));
    const atMs = this.#nowMs();
    const ends = new Map<StepId, StepEnd>();
    const closed = await this.#book.record(taskId, (session) =>
      sessionContextOf(session)
        .openSteps.filter(({ stepId }) => !running.has(stepId))
        .map(({ stepId, mode }) => {
          const end = outOfSight(why, holdsNodes ? mode : null);
          ends.set(stepId, end);
          return { type: 'step.ended', v: 1, atMs, stepId, ...end };
        }),
    );
    for (const event of closed) {
      if (event.type !== 'step.ended' || this.#steps.has(event.stepId)) continue;
      // Whoever waits for it is told.
      const end = ends.get(event.stepId) ?? NO_END_KNOWN;
      this.#ended(this.#track(runningStep(taskId, { stepId: event.stepId, outputLimitBytes: 0 }, this.#budget)), end);
    }
  }

  forget(stepId: StepId): void {
    this.#steps.delete(stepId);
  }

  /** What has ended and was not fetched for long leaves its output behind, and is forgotten when nobody asks for its end. */
  sweep(): void {
    const nowMs = this.#deps.clock.monotonicMs();
    for (const { stepId, endedAtMs, output } of this.#steps.values()) {
      if (endedAtMs === null || nowMs - endedAtMs < KEEP_ENDED_MS) continue;
      if (nowMs - endedAtMs >= 2 * KEEP_ENDED_MS) this.#steps.delete(stepId);
      if (output.isEmpty) continue;
      output.abandon();
      this.#around.onNews();
    }
  }

  /** Takes a step up. Asked for again, it is the same step. Resolves when it has ended and that is recorded. */
  async request(taskId: TaskId, { request, by }: Asked): Promise<void> {
    const { stepId } = request;
    const known = this.#steps.get(stepId);
    if (known !== undefined) {
      known.wanted = true;
      known.asked += 1;
      known.offer = { atMs: 0, waitMs: 0 };
      this.#around.onNews();
      return;
    }
    const step = this.#track(runningStep(taskId, request, this.#budget));
    try {
      const past = await this.#pastEnd(taskId, stepId);
      step.isOurs = past === null;
      this.#ended(step, past ?? (await this.#begin(step, request, by)) ?? (await this.#run(step, request)));
    } catch (error) {
      // Whoever waits for it is told, whatever went wrong.
      if (step.end === null) this.#ended(step, { ...NO_END_KNOWN, detail: "the worker's log did not answer" });
      throw error;
    }
  }

  /** Asks for a step's end; it is recorded first. */
  async cancel(taskId: TaskId, stepId: StepId, by: string): Promise<void> {
    try {
      await this.#book.record(taskId, (session) => {
        const open = sessionContextOf(session).openSteps.find((step) => step.stepId === stepId);
        if (open?.cancelBy !== null) return [];
        return [{ type: 'step.cancelRequested', v: 1, atMs: this.#nowMs(), stepId, by: clip(by, 200) }];
      });
    } finally {
      // A full disk does not keep anybody's command going.
      const step = this.#steps.get(stepId);
      step?.stop.abort();
      step?.control?.cancel();
    }
  }

  /** Passes on what a user types, in order; a piece that came before is not passed on again. */
  async input(taskId: TaskId, stepId: StepId, piece: StdinPiece): Promise<void> {
    const step = this.#steps.get(stepId);
    if (step === undefined) return;
    await step.input.pass(piece);
    this.#around.onNews();
    await this.#noteActivity(taskId);
  }

  /** Ends every step of a session; each end is recorded when it is seen. */
  async cancelAll(taskId: TaskId, by: string): Promise<void> {
    for (const step of [...this.#steps.values()])
      if (step.taskId === taskId && step.end === null) await this.cancel(taskId, step.stepId, by);
  }

  /** The worker stops: what runs in an allocation goes on, and nobody follows it any more. */
  leave(): void {
    this.#leaving = true;
    for (const { stop } of this.#steps.values()) stop.abort(LEAVE_RUNNING);
  }

  #track(step: RunningStep): RunningStep {
    this.#steps.set(step.stepId, step);
    return step;
  }

  /** How a step ended that an earlier life of this worker ran: it is not run a second time. */
  async #pastEnd(taskId: TaskId, stepId: StepId): Promise<StepEnd | null> {
    const session = await this.#book.load(taskId);
    if (session === null || !this.#book.knowsStep(taskId, stepId)) return null;
    return (await this.#book.endOf(taskId, stepId)) ?? NO_END_KNOWN;
  }

  /** Only the first to be recorded counts: whoever could not record the intention starts nothing. null: it may run. */
  async #begin(step: RunningStep, request: StepRequest, by: string): Promise<StepEnd | null> {
    const admitted = await this.#admit(step, request);
    if (admitted.kind === 'refused') return refusal(admitted.detail);
    const { taskId } = step;
    const noticeDue = admitted.noticeDue;
    let recorded;
    try {
      recorded = await this.#book.record(taskId, () => [requested(request, by, this.#nowMs())]);
    } catch (error) {
      this.#ended(step, refusal('the worker could not record it; nothing was started'));
      throw error;
    }
    if (recorded.length === 0) return refusal('the session ended, or lost a rank, just now; nothing was started');
    if (noticeDue !== null) step.notice = noticeDue;
    this.#around.onNews();
    return null;
  }

  async #run(step: RunningStep, request: StepRequest): Promise<StepEnd> {
    const { taskId, stepId } = step;
    const end =
      request.mode === 'run' ? await this.#runInAllocation(step, request) : await this.#runAtAgent(step, request);
    if (!this.#leaving) await this.#recordEnd(taskId, stepId, end);
    return end;
  }

  async #admit(step: RunningStep, request: StepRequest): Promise<Exclude<Admission, { kind: 'notYet' }>> {
    const untilMs = this.#deps.clock.monotonicMs() + READY_WAIT_MS;
    for (;;) {
      const session = await this.#book.load(step.taskId);
      const verdict = admission(session, this.#around.job(step.taskId), request);
      const waitMs = untilMs - this.#deps.clock.monotonicMs();
      if (verdict.kind !== 'notYet') return verdict;
      if (waitMs <= 0) return { kind: 'refused', detail: verdict.detail };
      if (step.stop.signal.aborted) return { kind: 'refused', detail: 'it was cancelled before it was started' };
      await this.#around.changed(step.taskId, Math.min(waitMs, 1_000));
    }
  }

  async #runInAllocation(step: RunningStep, request: Extract<StepRequest, { mode: 'run' }>): Promise<StepEnd> {
    const job = this.#around.job(step.taskId);
    // Not the job of a moment ago: without a live handle nothing is started (INV-4).
    const handle = job !== null && phaseOf(job) === 'Running' ? contextOf(job).handle : null;
    const profile = job === null ? undefined : this.#deps.profiles.get(contextOf(job).profile);
    const directory = job === null ? '' : this.#deps.directories.path(contextOf(job).jobId);
    const nodes = request.nodes ?? 1;
    const reply = await this.#deps.backend.runStep({
      handle,
      argv: request.argv,
      nodes,
      tasks: request.tasks ?? nodes,
      cpusPerTask: request.cpusPerTask ?? 1,
      directory,
      environment: { ...profile?.environment, OPEN_COMPUTE_DIRECTORY: directory },
      timeLimitMs: request.timeLimitS === null ? null : request.timeLimitS * 1000,
      onOutput: (stream, bytes) => this.#wrote(step, stream, bytes),
      signal: step.stop.signal,
    });
    return endOfReply(reply, step.output.droppedBytes);
  }

  async #runAtAgent(step: RunningStep, request: Extract<StepRequest, { mode: 'exec' }>): Promise<StepEnd> {
    const link = this.#around.link(step.taskId, request.rank);
    if (link === null) return refusal(`the agent of rank ${String(request.rank)} is not in; nothing was started`);
    if (!(await link.ping(AGENT_ANSWERS_MS)))
      return refusal(`the agent of rank ${String(request.rank)} does not answer; nothing was started`);
    const { stepId, argv, stdin, timeLimitS, outputLimitBytes } = request;
    const timeLimitMs = timeLimitS === null ? null : timeLimitS * 1000;
    const ended = await new Promise<AgentStepEnd>((resolve) => {
      step.control = link.start(
        { stepId, argv, stdin, timeLimitMs, outputLimitBytes },
        { output: (stream, bytes) => this.#wrote(step, stream, bytes), ended: resolve },
      );
      step.input.begin(step.control);
      if (step.stop.signal.aborted) step.control.cancel();
    });
    const end = endOfAgent(ended, step.output.droppedBytes);
    return step.input.isLost ? { ...end, detail: 'a part of its input was lost on the way: it was ended' } : end;
  }

  #wrote(step: RunningStep, stream: 'stdout' | 'stderr', bytes: Buffer): void {
    step.output.add(stream, bytes);
    this.#around.onNews();
  }

  /** Until it is recorded the step counts as under way: a full disk is tried again, for as long as the worker lives. */
  async #recordEnd(taskId: TaskId, stepId: StepId, end: StepEnd): Promise<void> {
    for (let waitMs = 1_000; ; waitMs = Math.min(60_000, waitMs * 2)) {
      try {
        await this.#book.record(taskId, () => [{ type: 'step.ended', v: 1, atMs: this.#nowMs(), stepId, ...end }]);
        return;
      } catch (error) {
        this.#deps.log.error({ err: error, taskId, stepId }, 'the end of a step could not be recorded, trying again');
      }
      await this.#deps.clock.sleep(waitMs);
      if (this.#leaving) return;
    }
  }

  #ended(step: RunningStep, end: StepEnd): void {
    step.end = end;
    step.endedAtMs = this.#deps.clock.monotonicMs();
    step.input.begin(null);
    this.#around.onNews();
  }

  async #noteActivity(taskId: TaskId): Promise<void> {
    const nowMs = this.#deps.clock.monotonicMs();
    if (nowMs - (this.#activityAtMs.get(taskId) ?? Number.NEGATIVE_INFINITY) < ACTIVITY_EVERY_MS) return;
    this.#activityAtMs.set(taskId, nowMs);
    await this.#book.record(taskId, () => [{ type: 'activity.seen', v: 1, atMs: this.#nowMs(), what: 'input' }]);
  }

  #nowMs(): number {
    return this.#deps.clock.nowMs();
  }
}
