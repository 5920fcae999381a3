import type { JobAnswer, Observations, WatchItem } from '../backend.js';
import type { JobId } from '../machines/vocabulary.js';
import { absent, answerOf } from './answer.js';
import { outageOf, type LocalContext } from './context.js';
import { lookAt, type LocalState } from './job-state.js';
import type { Submission } from './registry.js';
import { killRemains, signalTrees, type Remains } from './trees.js';

interface Look {
  readonly submission: Submission;
  readonly state: LocalState;
}

/** Tells what is true of jobs; remembers which of them have nothing left to be ended, to save passes over /proc. */
export class Observer {
  readonly #context: LocalContext;
  readonly #clean = new Set<JobId>();

  constructor(context: LocalContext) {
    this.#context = context;
  }

  /** Starts what may start, ends what ran over its grace, and answers for every item. */
  async observe(items: readonly WatchItem[]): Promise<Observations> {
    try {
      await this.#context.queue.run();
      const answers = new Map<JobId, JobAnswer>();
      const looks: Look[] = [];
      for (const item of items) {
        const look = await this.#look(item);
        if ('submission' in look) looks.push(look);
        else answers.set(item.jobId, look);
      }
      await this.#escalate(looks);
      const untidy = await this.#tidy(looks);
      for (const { submission, state } of looks) {
        const { jobId } = submission;
        const why = this.#context.queue.waitingWhy(submission.token);
        const answer = answerOf(submission, state, why);
        answers.set(jobId, untidy.has(jobId) ? stillEnding(answer) : answer);
      }
      return { jobs: answers, outage: null, queueOutage: null, oddities: [] };
    } catch (error) {
      const outage = outageOf('looking at the jobs of this machine', error);
      return { jobs: new Map(), outage, queueOutage: outage, oddities: [] };
    }
  }

  async #look(item: WatchItem): Promise<Look | JobAnswer> {
    const { registry } = this.#context;
    const found = await registry.find(item.token);
    if (found.kind === 'corrupt') return { kind: 'unanswered', detail: found.detail, queueAbsent: false };
    if (found.kind === 'absent') return absent('no job of this machine has its token');
    const { submission } = found;
    // A number alone is no identity (INV-13).
    const isSame =
      submission.jobId === item.jobId &&
      (item.handle === null ||
        (item.handle.id === submission.token && item.handle.submittedAtMs === submission.submittedAtMs));
    if (!isSame) return absent(`the job with its token is another one: ${submission.jobId}`);
    return { submission, state: await lookAt(submission, registry) };
  }

  /** Who was asked to end, and did not within the grace, is killed; also after a restart, for the request is on disk. */
  async #escalate(looks: readonly Look[]): Promise<void> {
    const nowMs = this.#context.clock.nowMs();
    const overdue = looks.flatMap(({ submission, state }): Remains[] => {
      if (state.kind !== 'running' || state.cancelAskedAtMs === null) return [];
      return isOverdue(state.cancelAskedAtMs, nowMs, this.#context.killGraceMs)
        ? [{ jobId: submission.jobId, run: state.run }]
        : [];
    });
    await signalTrees(overdue, 'SIGKILL');
  }

  /** Ends what jobs that are over left behind; answers the jobs of which something is still there. */
  async #tidy(looks: readonly Look[]): Promise<ReadonlySet<JobId>> {
    const over = looks.flatMap(({ submission, state }): Remains[] => {
      const mayLeave = state.kind === 'ended' || state.kind === 'killed' || state.kind === 'vanished';
      if (!mayLeave || this.#clean.has(submission.jobId)) return [];
      return [{ jobId: submission.jobId, run: state.kind === 'ended' ? state.run : null }];
    });
    const untidy = await killRemains(over);
    for (const { jobId } of over) if (!untidy.has(jobId)) this.#clean.add(jobId);
    return untidy;
  }

  /** Forgets jobs that the registry has forgotten. */
  forget(jobIds: readonly JobId[]): void {
    for (const jobId of jobIds) this.#clean.delete(jobId);
  }
}

/** A clock that went back counts as overdue: better early than never. */
export const isOverdue = (askedAtMs: number, nowMs: number, graceMs: number): boolean =>
  nowMs < askedAtMs || nowMs - askedAtMs >= graceMs;

/** The work is over, but processes of it are still there: not the end yet (INV-3). */
const stillEnding = (answer: JobAnswer): JobAnswer =>
  answer.kind === 'seen'
    ? { ...answer, state: { phase: 'Running', ending: true }, why: 'what it left behind is being ended' }
    : { kind: 'unanswered', detail: 'what it left behind is being ended', queueAbsent: false };
