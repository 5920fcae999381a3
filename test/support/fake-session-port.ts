import type {
  CallsAnswer,
  CallsRequest,
  OutputStream,
  SessionCall,
  SessionPort,
  SessionReport,
  SessionReportAnswer,
  SessionView,
  StepEnd,
  StepNews,
} from '../../src/coordinator/session-api.js';
import type { PortAnswer } from '../../src/coordinator/worker-api.js';
import type { StepId, TaskId } from '../../src/machines/vocabulary.js';
import { flush } from './manual-clock.js';

/** What the coordinator has of one step. */
export interface DeskStep {
  readonly bytes: Record<OutputStream, Buffer>;
  /** Where its bytes of each stream begin: a coordinator that restarted takes a stream up at the first piece. */
  readonly from: Record<OutputStream, number>;
  readonly begun: Set<OutputStream>;
  readonly notices: string[];
  end: StepEnd | null;
  stdinTaken: number;
}

/** The coordinator's desk: it numbers what the test asks for, and keeps what it is told. */
export class FakeSessionPort implements SessionPort {
  readonly requests: CallsRequest[] = [];
  readonly reports: SessionReport[] = [];
  /** Reports that had something of a step. */
  readonly offers: { readonly atMs: number; readonly news: StepNews }[] = [];
  readonly views: SessionView[] = [];
  /** Also those that met trouble. */
  readonly tries = { report: 0 };
  trouble: Exclude<PortAnswer<never>, { kind: 'answered' }> | null = null;
  /** How many bytes of each stream of each step there is room for, counted from the first. */
  roomBytes = Number.POSITIVE_INFINITY;
  /** Steps that nobody asks for any more. */
  readonly unknown = new Set<StepId>();
  readonly #nowMs: () => number;
  readonly #steps = new Map<StepId, DeskStep>();
  #life = 1;
  #asked: SessionCall[] = [];
  readonly #waiting = new Set<() => void>();

  constructor(nowMs: () => number) {
    this.#nowMs = nowMs;
  }

  get desk(): string {
    return `desk-${String(this.#life)}`;
  }

  ask(call: SessionCall): void {
    this.#asked.push(call);
    this.#wakeUp();
  }

  /** It knows nothing any more. */
  restart(): void {
    this.#life += 1;
    this.#asked = [];
    this.#steps.clear();
    this.#wakeUp();
  }

  step(stepId: StepId): DeskStep {
    const known = this.#steps.get(stepId);
    if (known !== undefined) return known;
    const empty = { stdout: Buffer.alloc(0), stderr: Buffer.alloc(0) };
    const step: DeskStep = {
      bytes: empty,
      from: { stdout: 0, stderr: 0 },
      begun: new Set(),
      notices: [],
      end: null,
      stdinTaken: 0,
    };
    this.#steps.set(stepId, step);
    return step;
  }

  text(stepId: StepId, stream: OutputStream = 'stdout'): string {
    return this.step(stepId).bytes[stream].toString();
  }

  /** The newest view of a session. */
  view(taskId: TaskId): SessionView | null {
    return this.views.findLast((view) => view.taskId === taskId) ?? null;
  }

  async calls(request: CallsRequest, signal?: AbortSignal): Promise<PortAnswer<CallsAnswer>> {
    this.requests.push(request);
    await flush();
    while (this.trouble === null && this.#after(request).length === 0 && request.desk === this.desk) {
      if (signal?.aborted === true) break;
      await this.#change(signal);
    }
    return this.trouble ?? { kind: 'answered', value: { desk: this.desk, calls: this.#after(request) } };
  }

  async report(report: SessionReport): Promise<PortAnswer<SessionReportAnswer>> {
    this.tries.report += 1;
    await flush();
    if (this.trouble !== null) return this.trouble;
    this.reports.push(report);
    this.views.push(...report.views.map(({ view }) => view));
    for (const news of report.steps) this.offers.push({ atMs: this.#nowMs(), news });
    return {
      kind: 'answered',
      value: { desk: this.desk, stale: [], taken: report.steps.map((news) => this.#take(news)) },
    };
  }

  #after({ desk, after }: CallsRequest): CallsAnswer['calls'] {
    const from = desk === this.desk ? after : 0;
    return this.#asked.slice(from).map((call, index) => ({ seq: from + index + 1, call }));
  }

  #take({ stepId, pieces, notice, end, stdinTaken }: StepNews): SessionReportAnswer['taken'][number] {
    const asked = this.#asked.some((call) => call.type === 'step' && call.request.stepId === stepId);
    if (!asked || this.unknown.has(stepId)) return null;
    const step = this.step(stepId);
    let whole = true;
    for (const { stream, offset, data } of pieces) {
      const bytes = Buffer.from(data, 'base64');
      if (!step.begun.has(stream)) step.from[stream] = offset;
      step.begun.add(stream);
      const has = hasOf(step, stream);
      // What follows a piece that there was no room for comes again.
      if (offset > has && !whole) continue;
      if (offset > has) throw new Error(`a gap in ${stream} of ${stepId}: ${String(offset)} after ${String(has)}`);
      const fits = bytes.subarray(has - offset, Math.max(0, this.roomBytes - offset));
      step.bytes[stream] = Buffer.concat([step.bytes[stream], fits]);
      whole &&= hasOf(step, stream) >= offset + bytes.length;
    }
    if (notice !== null) step.notices.push(notice);
    step.stdinTaken = stdinTaken;
    if (whole && end !== null) step.end = end;
    return { stdout: hasOf(step, 'stdout'), stderr: hasOf(step, 'stderr'), ended: whole && end !== null };
  }

  /** Resolves at the next change, or when the signal aborts. */
  #change(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      const done = (): void => {
        this.#waiting.delete(done);
        signal?.removeEventListener('abort', done);
        resolve();
      };
      this.#waiting.add(done);
      signal?.addEventListener('abort', done, { once: true });
    });
  }

  #wakeUp(): void {
    for (const done of [...this.#waiting]) done();
  }
}

const hasOf = ({ from, bytes }: DeskStep, stream: OutputStream): number => from[stream] + bytes[stream].length;
