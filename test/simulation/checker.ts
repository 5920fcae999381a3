import { isDeepStrictEqual } from 'node:util';
import type { RecordedEvent } from '../../src/events/store.js';
import { JobReading, TaskReading } from './readings.js';
import type { ScriptedAccounting } from './scripted-accounting.js';
import { isActive, isOver, type ScriptedJob } from './scripted-job.js';

/** A worker's process as the checker knows it: which log it writes, and whether its newest poll was answered at all. */
export interface Incarnation {
  readonly log: string;
  readonly name: string;
  /** No query of its newest poll was answered: nothing may be learned from it (INV-10). */
  isBlind: boolean;
}

const EVENTS_PER_JOB_MAX = 200;
/** So long after everything works again an Unknown job may still be looked up, ms. */
const UNKNOWN_MAX_MS = 900_000;

/** What only an answer of the backend may lead to. */
const LEARNED = [
  'job.observed',
  'completion.reported',
  'loss.noted',
  'loss.confirmed',
  'lookup.absent',
  'submission.found',
  'submission.disproved',
  'duplicate.found',
  'duplicate.ended',
  'late.observed',
];

/**
 * Holds the logs against the ground truth. It knows neither the machines nor the decisions of the code under test: it
 * reads the raw events (readings.ts) and the scripted scheduler's own memory.
 */
export class Checker {
  readonly #nowMs: () => number;
  readonly #accounting: ScriptedAccounting;
  readonly violations: string[] = [];
  readonly tasks = new Map<string, TaskReading>();
  /** By log, then by job. */
  readonly logs = new Map<string, Map<string, JobReading>>();
  readonly #landed = new Map<string, ScriptedJob[]>();
  readonly #workers = new Map<string, Set<number>>();
  readonly #taskOfToken = new Map<string, string>();
  readonly #outages = new Map<string, boolean>();
  readonly #positions = new Map<string, number>();
  healedAtMs: number | null = null;

  constructor(nowMs: () => number, accounting: ScriptedAccounting) {
    this.#nowMs = nowMs;
    this.#accounting = accounting;
  }

  fail(message: string): void {
    this.violations.push(`at ${String(this.#nowMs())} ms: ${message}`);
  }

  // What the world tells.

  landed(job: ScriptedJob): void {
    if (job.token === null) return;
    const earlier = this.#landed.get(job.token) ?? [];
    for (const other of earlier) {
      // One that is over, did nothing and shows nowhere is beyond what a client can know of.
      const shows = !other.isPurged || this.#accounting.knowsName(other.name);
      if (!job.isOutside && (!isOver(other) || other.worked || shows)) {
        this.fail(
          `a second job landed for token ${job.token}: ${place(other)} (${other.state}), then ${place(job)} (INV-8)`,
        );
      }
    }
    this.#landed.set(job.token, [...earlier, job]);
  }

  workBegan(job: ScriptedJob): void {
    if (job.token === null) return;
    const serials = this.#workers.get(job.token) ?? new Set<number>();
    this.#workers.set(job.token, serials.add(job.serial));
    if (serials.size > 1) this.fail(`two jobs did the work of token ${job.token} (INV-8)`);
  }

  submitStarted(incarnation: Incarnation, token: string): void {
    const job = this.#byToken(incarnation.log, token);
    if (job?.attemptOpen !== true) this.fail(`sbatch for ${token} without its intention in the log (INV-8)`);
    else if (job.attemptSent) this.fail(`two requests for one attempt of ${token} (INV-8)`);
    else job.attemptSent = true;
  }

  /** `isAvoidable`: nothing that the worker had asked by then made it sure that the id was still its own. */
  cancelHits(incarnation: Incarnation, job: ScriptedJob, isAvoidable: boolean): void {
    const jobs = [...(this.logs.get(incarnation.log)?.values() ?? [])];
    const at = (handle: { readonly id: string } | null): boolean => handle?.id === String(job.id);
    const meant = jobs.some(
      (one) =>
        one.created.token === job.token &&
        ((one.wish !== null && at(one.handle)) || [...one.duplicates.values()].some(at)),
    );
    if (!meant && isAvoidable) this.fail(`a cancel ended ${place(job)}, which nobody meant (INV-13)`);
  }

  recorded(log: string, record: RecordedEvent, incarnation: Incarnation | null): void {
    const { event, stream, version, position } = record;
    const last = this.#positions.get(log) ?? 0;
    if (position !== last + 1) this.fail(`${log}: position ${String(position)} after ${String(last)} (INV-12)`);
    this.#positions.set(log, position);
    if (stream.startsWith('task/')) this.#readTask(stream, version, event);
    else if (stream.startsWith('job/')) this.#readJob(log, stream, version, event);
    else this.#readHealth(incarnation?.name ?? log, event);
    if (incarnation?.isBlind === true && LEARNED.includes(event.type)) {
      const source = event.type === 'submission.found' ? event.source : '';
      if (source !== 'directory') this.fail(`${stream}: ${event.type} although no question was answered (INV-10)`);
    }
  }

  /** What has to hold at every moment. */
  tick(active: readonly ScriptedJob[]): void {
    const byTask = new Map<string, ScriptedJob>();
    for (const job of active) {
      const taskId = job.token === null ? undefined : this.#taskOfToken.get(job.token);
      if (taskId === undefined || job.isOutside) continue;
      const task = this.tasks.get(taskId);
      if (task?.isOver() === true && !task.isAbandoned && task.reason !== 'ABANDONED') {
        this.fail(`${place(job)} is ${job.state} after ${taskId} was announced ${task.phase}`);
      }
      const other = byTask.get(taskId);
      if (other !== undefined) this.fail(`${place(other)} and ${place(job)} live for ${taskId} at once (INV-3)`);
      byTask.set(taskId, job);
    }
  }

  /** Jobs that nobody knows how to find for too long. Asked once in a while. */
  lookForStuck(liveLogs: readonly { readonly log: string; readonly sinceMs: number }[]): void {
    if (this.healedAtMs === null) return;
    for (const { log, sinceMs } of liveLogs) {
      for (const [jobId, job] of this.logs.get(log) ?? []) {
        const waitedMs = this.#nowMs() - Math.max(job.phaseSinceMs, this.healedAtMs, sinceMs);
        if (job.phase === 'Unknown' && waitedMs > UNKNOWN_MAX_MS) this.fail(`${jobId} stays Unknown`);
      }
    }
  }

  /** Phases of the jobs that a worker should have in memory. */
  phaseCounts(log: string): Readonly<Record<string, number>> {
    const counts: Record<string, number> = {};
    for (const job of this.logs.get(log)?.values() ?? []) {
      if (!job.isSettled) counts[job.phase] = (counts[job.phase] ?? 0) + 1;
    }
    return counts;
  }

  /** Jobs that a worker still has something to do for. */
  unsettled(log: string): readonly JobReading[] {
    return [...(this.logs.get(log)?.values() ?? [])].filter((job) => !job.isSettled);
  }

  /** The submission token of a job; null: nobody made it. */
  tokenOf(jobId: string): string | null {
    return this.#jobAnywhere(jobId)?.created.token ?? null;
  }

  #byToken(log: string, token: string): JobReading | undefined {
    return [...(this.logs.get(log)?.values() ?? [])].find((job) => job.created.token === token);
  }

  #readTask(stream: string, version: number, event: RecordedEvent['event']): void {
    const taskId = stream.slice('task/'.length);
    const task = this.tasks.get(taskId);
    if (event.type === 'task.submitted') {
      if (task !== undefined) this.fail(`${taskId} was submitted twice`);
      else this.tasks.set(taskId, new TaskReading(event));
      return;
    }
    if (task === undefined) {
      this.fail(`${taskId}: ${event.type} before task.submitted`);
      return;
    }
    if (version !== task.phases.length) this.fail(`${taskId}: version ${String(version)} is not the next one`);
    const problem = task.read(event);
    if (problem !== null) this.fail(`${taskId}: ${problem}`);
    if (event.type === 'task.completed') this.#checkResult(taskId, event.jobId, event.result);
  }

  #checkResult(taskId: string, jobId: string, result: unknown): void {
    const token = this.#jobAnywhere(jobId)?.created.token;
    const truths = (token === undefined ? undefined : this.#landed.get(token)) ?? [];
    const done = truths.filter((job) => (job.endState ?? job.state) === 'COMPLETED');
    if (done.length === 0) this.fail(`${taskId} completed, but no job of ${jobId} did`);
    else if (!done.some((job) => job.result !== null && isDeepStrictEqual(job.result, result))) {
      this.fail(`${taskId} completed with a result that no job of ${jobId} wrote`);
    }
  }

  #jobAnywhere(jobId: string): JobReading | undefined {
    for (const jobs of this.logs.values()) {
      const job = jobs.get(jobId);
      if (job !== undefined && !job.created.inherited) return job;
    }
    return undefined;
  }

  #readJob(log: string, stream: string, version: number, event: RecordedEvent['event']): void {
    const jobId = stream.slice('job/'.length);
    const jobs = this.logs.get(log) ?? new Map<string, JobReading>();
    this.logs.set(log, jobs);
    const known = jobs.get(jobId);
    if (event.type === 'job.created') {
      if (known !== undefined) this.fail(`${jobId} was created twice`);
      jobs.set(jobId, new JobReading(event, this.#nowMs()));
      this.#taskOfToken.set(event.token, event.taskId);
      return;
    }
    if (known === undefined) {
      this.fail(`${jobId}: ${event.type} before job.created`);
      return;
    }
    if (version !== known.events + 1) this.fail(`${jobId}: version ${String(version)} is not the next one`);
    const wasOver = known.isOver();
    const problem = known.read(event, this.#nowMs());
    if (problem !== null) this.fail(`${jobId}: ${problem}`);
    if (known.events === EVENTS_PER_JOB_MAX) this.fail(`${jobId} has ${String(EVENTS_PER_JOB_MAX)} events`);
    if (event.type === 'completion.reported' || (!wasOver && known.isOver())) this.#checkEnd(jobId, known, event.type);
  }

  /** A job that is said to be over is over, and as what it is. */
  #checkEnd(jobId: string, job: JobReading, type: string): void {
    if (job.reason === 'ABANDONED') return;
    const truths = this.#landed.get(job.created.token) ?? [];
    const alive = truths.find((one) => isActive(one) && !one.isOutside);
    if (alive !== undefined && job.duplicates.size === 0) {
      this.fail(`${jobId} is said to be over (${type}), but ${place(alive)} is ${alive.state}`);
    }
    const own = truths.filter((one) => String(one.id) === job.handle?.id);
    const completed = own.some((one) => (one.endState ?? one.state) === 'COMPLETED');
    if (type === 'completion.reported' && !completed) this.fail(`${jobId}: a completion that nothing reported`);
    if (type === 'job.observed' && own.length === 0) this.fail(`${jobId}: an end of a job that never landed`);
    if (type === 'job.observed' && completed) this.fail(`${jobId} is said to be ${job.phase}, but it completed`);
  }

  #readHealth(log: string, event: RecordedEvent['event']): void {
    if (event.type === 'worker.started') {
      for (const part of ['queue', 'accounting']) this.#outages.set(`${log}/${part}`, false);
    } else if (event.type === 'outage.began' || event.type === 'outage.ended') {
      const key = `${log}/${event.part}`;
      const isOut = event.type === 'outage.began';
      if (this.#outages.get(key) === isOut) this.fail(`${log}: ${event.type} twice for ${event.part} (INV-10)`);
      this.#outages.set(key, isOut);
    }
  }
}

export const place = (job: ScriptedJob): string =>
  `job ${String(job.id)} on ${job.cluster} (serial ${String(job.serial)})`;
