import type { ClientAnswer, CoordinatorClient } from '../coordinator/client.js';
import type { OutputStream, StepEnd, StepOutput, StepRequest, StepSizes } from '../coordinator/session-api.js';
import type { Epoch, TaskId } from '../machines/vocabulary.js';
import { refused, valueOf } from './client.js';
import { CliError } from './errors.js';
import { EXIT } from './exit-codes.js';
import type { Io } from './io.js';
import { note } from './output.js';

/** How long one question for more output may wait at the coordinator. */
const POLL_MS = 25_000;
/** The first question: what holds a step up is said soon. */
const FIRST_POLL_MS = 3_000;
/** While the reader of our output takes its time, the coordinator is told that somebody follows the step. */
const ALIVE_MS = 60_000;
/** Between two tries while the coordinator does not answer. */
const RETRY_MS = 1_000;
const NOT_FOUND_STATUS = 404;

/** How much of each stream there is so far, bytes. */
type Offsets = Record<OutputStream, number>;

/** Where a step's output goes; resolves when there is room for more. */
export type StepSink = (stream: OutputStream, bytes: Buffer) => Promise<void>;

/** A step as the command line follows it. */
export interface Followed {
  readonly io: Io;
  readonly client: CoordinatorClient;
  readonly taskId: TaskId;
  readonly request: StepRequest;
}

/** A word of our own between those of the command: it says whose it is. */
export const aside = (io: Io, text: string): Promise<void> => note(io, `open-compute: ${text}`);

/**
 * Asks for a step and passes on what it writes until it ends. A coordinator that is away is waited for; the step is asked
 * for again under its id when it has forgotten it, and goes on where it was. The first Ctrl-C asks for its end. Throws a
 * `CliError` when the step is refused, or nobody can say any more what became of it. `onAccepted`: from here on the
 * coordinator knows the step.
 */
export async function followStep(step: Followed, sink: StepSink, onAccepted: () => void): Promise<StepEnd> {
  const { io, client, taskId, request } = step;
  const asked = await client.requestStep(taskId, request);
  if (asked.kind === 'unreachable') {
    const hint = `it may have been started as ${request.stepId}: open-compute session status ${taskId}`;
    throw new CliError(EXIT.unreachable, `the coordinator does not answer: ${asked.detail}`, hint);
  }
  const { epoch } = valueOf(asked);
  onAccepted();
  const interrupted = cancelOnInterrupt(step);
  // Whoever reads our output has gone (`| head`): nobody wants the rest.
  const keep = io.beforeExit?.(async () => {
    await client.cancelStep(taskId, request.stepId);
  });
  try {
    return await readToEnd(step, epoch, sink);
  } finally {
    interrupted.forget();
    keep?.();
    // What it has to say comes before what its caller says.
    await interrupted.said;
  }
}

async function readToEnd(step: Followed, epoch: Epoch, sink: StepSink): Promise<StepEnd> {
  const { io, client, taskId, request } = step;
  const at = { stdout: 0, stderr: 0 };
  let isAway = false;
  let said: string | null = null;
  for (let waitMs = FIRST_POLL_MS; ; waitMs = POLL_MS) {
    const answer = await client.stepOutput(taskId, request.stepId, { ...at, waitMs });
    if (answer.kind === 'unreachable') {
      if (!isAway) await aside(io, `the coordinator does not answer (${answer.detail}); trying again until it does`);
      isAway = true;
      // Not ended by Ctrl-C: the first one only cancels.
      await io.clock.sleep(RETRY_MS);
      continue;
    }
    if (isAway) await aside(io, 'the coordinator answers again');
    isAway = false;
    if (answer.kind === 'refused') {
      if (answer.status !== NOT_FOUND_STATUS) throw refused(answer);
      await askAgain(step, epoch);
      continue;
    }
    const { pieces, notice, waiting, end, sizes } = answer.value;
    if (notice !== null) await aside(io, notice);
    if (waiting !== null && waiting !== said) await aside(io, `${waiting}; waiting`);
    said = waiting ?? said;
    await whileAlive(step, at, passOn(io, pieces, at, sink));
    if (end === null) continue;
    await sayMissing(io, at, end, sizes);
    return end;
  }
}

/** What was written and will not come any more is said, whatever the exit code. */
async function sayMissing(io: Io, at: Offsets, { how }: StepEnd, sizes: StepSizes): Promise<void> {
  if (how === 'refused' || how === 'unknown') return;
  if (sizes === null) {
    await aside(io, 'some of its output may be missing: it ended before, and nobody knows any more how much there was');
    return;
  }
  for (const stream of ['stdout', 'stderr'] as const) {
    const missing = sizes[stream] - at[stream];
    if (missing > 0)
      await aside(io, `${String(missing)} bytes of ${stream} are missing at the end: they were lost on the way`);
  }
}

/** Waits for `work`, which may take as long as whoever reads our output. */
async function whileAlive({ io, client, taskId, request }: Followed, at: Offsets, work: Promise<void>): Promise<void> {
  const over = new AbortController();
  const beat = async (): Promise<void> => {
    for (;;) {
      await io.clock.sleep(ALIVE_MS, over.signal);
      if (over.signal.aborted) return;
      await client.stepOutput(taskId, request.stepId, { ...at, waitMs: 0 });
    }
  };
  const beating = beat();
  try {
    await work;
  } finally {
    over.abort();
    await beating;
  }
}

async function passOn(io: Io, pieces: StepOutput['pieces'], at: Offsets, sink: StepSink): Promise<void> {
  for (const { stream, offset, data } of pieces) {
    const missing = offset - at[stream];
    if (missing > 0)
      await aside(io, `${String(missing)} bytes of ${stream} are missing here: the coordinator restarted`);
    const bytes = Buffer.from(data, 'base64');
    const fresh = bytes.subarray(Math.min(bytes.length, Math.max(0, -missing)));
    at[stream] = Math.max(at[stream], offset + bytes.length);
    if (fresh.length > 0) await sink(stream, fresh);
  }
}

/** The coordinator has restarted, or forgotten the step: under its id it is the same one, and is not started again. */
async function askAgain({ client, taskId, request }: Followed, epoch: Epoch): Promise<void> {
  const asked = await client.requestStep(taskId, request, epoch);
  // Still away, or away again: the next question for output waits for it.
  if (asked.kind !== 'refused') return;
  throw new CliError(EXIT.noResult, `what became of ${request.stepId} nobody can say: ${asked.message}`, asked.hint);
}

/** On the first Ctrl-C the step is asked to end, and its end awaited; a second one ends this process. */
function cancelOnInterrupt({ io, client, taskId, request }: Followed): {
  readonly forget: () => void;
  readonly said: Promise<void>;
} {
  const { stepId } = request;
  const cancel = async (): Promise<void> => {
    await aside(io, 'asking the command to end, and waiting for its end; Ctrl-C once more stops the waiting');
    const answer: ClientAnswer<unknown> = await client.cancelStep(taskId, stepId);
    if (answer.kind === 'answered') return;
    const why = answer.kind === 'refused' ? answer.message : `the coordinator does not answer (${answer.detail})`;
    await aside(io, `it could not be asked: ${why}; later: open-compute session cancel-step ${taskId} ${stepId}`);
  };
  let started: Promise<void> = Promise.resolve();
  const onAbort = (): void => {
    started = cancel();
  };
  if (io.signal.aborted) onAbort();
  else io.signal.addEventListener('abort', onAbort, { once: true });
  return {
    forget: () => {
      io.signal.removeEventListener('abort', onAbort);
    },
    get said() {
      return started;
    },
  };
}
