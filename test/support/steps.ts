import type { Backend, StepReply, StepRequest } from '../../src/backend.js';

export interface StepRun {
  readonly reply: StepReply;
  readonly stdout: string;
  readonly stderr: string;
}

/** One task on one node, with nothing set that a test does not set. */
export const stepRequest = (over: Partial<StepRequest> & Pick<StepRequest, 'handle' | 'argv'>): StepRequest => ({
  nodes: 1,
  tasks: 1,
  cpusPerTask: 1,
  directory: '/runs/job',
  environment: {},
  timeLimitMs: 60_000,
  onOutput: () => undefined,
  signal: new AbortController().signal,
  ...over,
});

/** Runs a step and keeps what it wrote. */
export async function runStep(
  backend: Pick<Backend, 'runStep'>,
  over: Partial<StepRequest> & Pick<StepRequest, 'handle' | 'argv'>,
): Promise<StepRun> {
  const parts: Record<'stdout' | 'stderr', Buffer[]> = { stdout: [], stderr: [] };
  const onOutput = (stream: 'stdout' | 'stderr', bytes: Buffer): void => void parts[stream].push(Buffer.from(bytes));
  const reply = await backend.runStep(stepRequest({ onOutput, ...over }));
  return { reply, stdout: Buffer.concat(parts.stdout).toString(), stderr: Buffer.concat(parts.stderr).toString() };
}
