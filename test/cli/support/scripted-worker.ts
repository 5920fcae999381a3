import { readCredentialsFile } from '../../../src/coordinator/credentials-file.js';
import type {
  OutputPiece,
  SessionCall,
  SessionView,
  StepEnd,
  StepRequest,
} from '../../../src/coordinator/session-api.js';
import { WorkerClient } from '../../../src/coordinator/worker-client.js';
import type { LeaseGrant } from '../../../src/coordinator/worker-api.js';
import type { Epoch, StepId, TaskId } from '../../../src/machines/vocabulary.js';
import { systemClock } from '../../../src/runtime/clock.js';
import { hello, profile, sessionView } from '../../coordinator/harness.js';
import { jobId, token } from '../../support/ids.js';

export const ended = (how: StepEnd['how'], over: Partial<StepEnd> = {}): StepEnd => ({
  ...{ how, exitCode: null, signal: null, detail: '', droppedBytes: 0 },
  ...over,
});
export const exited = (exitCode = 0): StepEnd => ended('exited', { exitCode });

/** A step in a script's hands. */
export interface ScriptedStep {
  readonly request: StepRequest;
  /** Resolves when the coordinator has taken it. */
  readonly write: (stream: OutputPiece['stream'], data: string | Uint8Array) => Promise<void>;
  /** Bytes that the coordinator will never get. */
  readonly lose: (stream: OutputPiece['stream'], bytes: number) => void;
  readonly cancelled: Promise<void>;
  /** Standard input, as it comes; null at its end. */
  readonly read: () => Promise<Buffer | null>;
}
export type Script = (step: ScriptedStep) => Promise<StepEnd>;

interface Underway {
  readonly cancel: () => void;
  readonly input: (bytes: Buffer, end: boolean) => void;
}

const LEASES = 1000;

/** Fills the worker's side of the wire: sessions are what the test says, steps what its scripts do. */
export class ScriptedWorker {
  /** By the first word of the command. */
  readonly scripts = new Map<string, Script>();
  /** What every session is reported as; null: nothing is said of them. */
  view: Partial<SessionView> | null = {};
  readonly calls: SessionCall[] = [];
  readonly #client: WorkerClient;
  readonly #over = new AbortController();
  readonly #steps = new Map<StepId, Underway>();
  readonly #grants = new Map<TaskId, LeaseGrant>();
  #loops: Promise<unknown> = Promise.resolve();
  #jobs = 0;

  private constructor(client: WorkerClient) {
    this.#client = client;
  }

  static async start(file: string): Promise<ScriptedWorker> {
    const client = new WorkerClient(await readCredentialsFile(file), systemClock);
    const kinds = ['session'];
    const offered = hello({ kinds, profiles: [profile('desk', null, kinds)] });
    const greeted = await client.hello(offered);
    if (greeted.kind !== 'answered') throw new Error(greeted.kind);
    const worker = new ScriptedWorker(client);
    worker.#loops = Promise.all([worker.#takeLeases(), worker.#takeCalls(), worker.#renew()]);
    return worker;
  }

  async stop(): Promise<void> {
    this.#over.abort();
    await this.#loops;
    this.#client.close();
  }

  /** Ends a session's task; `lost`: it may come back. */
  async end(taskId: TaskId, type: 'cancelled' | 'lost'): Promise<void> {
    const grant = this.#grants.get(taskId);
    if (grant === undefined) throw new Error(`${taskId} is not leased`);
    this.#grants.delete(taskId);
    const { epoch } = grant;
    const common = { taskId, epoch, jobId: jobId(this.#jobOf(epoch, taskId)) };
    await this.#client.outcome(
      type === 'lost'
        ? { ...common, type, reason: 'NODE_FAILED', detail: 'n1 is down' }
        : { ...common, type, reason: 'SESSION_IDLE_TIMEOUT' },
    );
  }

  /** Says how every session is. */
  async report(): Promise<void> {
    if (this.view === null) return;
    const views = [...this.#grants.values()].map(({ taskId, epoch }) => ({
      epoch,
      view: sessionView({ taskId, profile: 'desk', epoch, ...this.view }),
    }));
    if (views.length > 0) await this.#client.sessions.report({ views, steps: [] });
  }

  readonly #numbers = new Map<string, number>();
  #jobOf(epoch: Epoch, taskId: TaskId): number {
    const key = `${taskId} ${epoch}`;
    const known = this.#numbers.get(key) ?? (this.#jobs += 1);
    this.#numbers.set(key, known);
    return known;
  }

  async #takeLeases(): Promise<void> {
    while (!this.#over.signal.aborted) {
      const given = await this.#client.acquire({ count: LEASES, waitMs: 30_000 }, this.#over.signal);
      if (given.kind !== 'answered') await this.#pause();
      else for (const grant of given.value) await this.#open(grant);
    }
  }

  async #open(grant: LeaseGrant): Promise<void> {
    const { taskId, epoch } = grant;
    const n = this.#jobOf(epoch, taskId);
    await this.#client.report([{ type: 'opened', taskId, epoch, jobId: jobId(n), token: token(n) }]);
    this.#grants.set(taskId, grant);
    await this.report();
  }

  async #renew(): Promise<void> {
    while (!this.#over.signal.aborted) {
      const leases = [...this.#grants.values()].map(({ taskId, epoch }) => ({ taskId, epoch }));
      const renewed = await this.#client.renew(leases);
      if (renewed.kind === 'answered')
        for (const { taskId } of renewed.value.cancel) await this.end(taskId, 'cancelled');
      await this.report();
      await this.#pause();
    }
  }

  async #takeCalls(): Promise<void> {
    let [desk, after]: [string | null, number] = [null, 0];
    while (!this.#over.signal.aborted) {
      const given = await this.#client.sessions.calls({ desk, after, waitMs: 30_000 }, this.#over.signal);
      if (given.kind !== 'answered') {
        await this.#pause();
        continue;
      }
      if (given.value.desk !== desk) after = 0;
      desk = given.value.desk;
      for (const { seq, call } of given.value.calls) {
        after = seq;
        this.calls.push(call);
        this.#take(call);
      }
    }
  }

  #take(call: SessionCall): void {
    if (call.type === 'step') this.#begin(call.taskId, call.request);
    else if (call.type === 'cancel') this.#steps.get(call.stepId)?.cancel();
    else this.#steps.get(call.stepId)?.input(Buffer.from(call.piece.data, 'base64'), call.piece.end);
  }

  #begin(taskId: TaskId, request: StepRequest): void {
    const { stepId } = request;
    const epoch = this.#grants.get(taskId)?.epoch;
    // Asked for anew: it is under way, and goes on reporting.
    if (this.#steps.has(stepId) || epoch === undefined) return;
    const sent = { stdout: 0, stderr: 0 };
    let stdinTaken = 0;
    const tell = (pieces: OutputPiece[], end: StepEnd | null): Promise<void> =>
      this.#tell({
        taskId,
        epoch,
        stepId,
        pieces,
        notice: null,
        stdinTaken,
        sizes: end === null ? null : { ...sent },
        end,
      });
    let cancel: () => void = () => undefined;
    const cancelled = new Promise<void>((resolve) => (cancel = resolve));
    const inputs: (Buffer | null)[] = [];
    let wake: () => void = () => undefined;
    const read = async (): Promise<Buffer | null> => {
      while (inputs.length === 0) await new Promise<void>((resolve) => (wake = resolve));
      const bytes = inputs.shift() ?? null;
      stdinTaken += bytes?.length ?? 0;
      return bytes;
    };
    const input = (bytes: Buffer, end: boolean): void => {
      if (bytes.length > 0) inputs.push(bytes);
      if (end) inputs.push(null);
      wake();
    };
    this.#steps.set(stepId, { cancel, input });
    const step: ScriptedStep = {
      request,
      cancelled,
      read,
      write: async (stream, data) => {
        const bytes = Buffer.from(data);
        const piece = { stream, offset: sent[stream], data: bytes.toString('base64') };
        sent[stream] += bytes.length;
        await tell([piece], null);
      },
      lose: (stream, bytes) => {
        sent[stream] += bytes;
      },
    };
    const script = this.scripts.get(request.argv[0] ?? '') ?? (async () => exited(127));
    void script(step).then((end) => tell([], end));
  }

  /** Again and again, until it is taken. */
  async #tell(news: Parameters<WorkerClient['sessions']['report']>[0]['steps'][number]): Promise<void> {
    while (!this.#over.signal.aborted) {
      const told = await this.#client.sessions.report({ views: [], steps: [news] });
      const taken = told.kind === 'answered' ? told.value.taken[0] : null;
      const isTaken =
        taken !== null &&
        taken !== undefined &&
        (news.end === null || taken.ended) &&
        news.pieces.every(({ stream, offset }) => taken[stream] > offset);
      if (isTaken || (told.kind === 'answered' && told.value.stale.length > 0)) return;
      await this.#pause();
    }
  }

  #pause(): Promise<void> {
    return systemClock.sleep(50, this.#over.signal);
  }
}
