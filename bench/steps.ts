import { join } from 'node:path';
import { writeFileSync } from 'node:fs';
import { CoordinatorClient } from '../src/coordinator/client.js';
import { OUTPUT_LIMIT_MAX_BYTES, type StepRequest } from '../src/coordinator/session-api.js';
import { StepId, type TaskId } from '../src/machines/vocabulary.js';
import { systemClock } from '../src/runtime/clock.js';
import { systemRandom, uniquePart } from '../src/runtime/random.js';
import type { Bench } from './support/bench.js';
import { command } from './support/cluster.js';
import { compared, median, spread } from './support/figures.js';
import { until } from './support/measure.js';
import { answered, Gateway } from './support/services.js';

const STEPS = 40;
const OUTPUTS = 3;
const OUTPUT_BYTES = 48 * 1024 * 1024;
const READY_MS = 60_000;

const CLUSTER = `[cluster]
name = "bench"
[profiles.one]
nodes = 1
`;

/** From asking for a step to holding its end, and how fast its output comes. */
export const steps: Bench = {
  name: 'steps',
  summary: 'a step in a session: how long it takes, how fast its output comes',
  needsCluster: true,
  run: async ({ directory, app, divisor }) => {
    const gateway = await Gateway.start(app, directory);
    writeFileSync(join(directory, 'cluster.toml'), CLUSTER);
    const worker = await gateway.startWorker(['--cluster-config', 'cluster.toml', '--session-listen', '127.0.0.1:0']);
    const client = new CoordinatorClient(await gateway.credentials('submitter', 'client'), {
      clock: systemClock,
      random: systemRandom,
    });
    try {
      const { taskId } = answered(await client.submit({ kind: 'session', payload: { profile: 'one' } }));
      const state = async (): Promise<boolean> => answered(await client.session(taskId)).session?.state === 'Ready';
      await until('the session is ready', state, READY_MS);
      const [job = ''] = (await command('squeue', '--me', '-h', '-o', '%i')).split('\n');
      const bare = [`--jobid=${job}`, '--overlap', '--nodes=1', '--ntasks=1', '--cpus-per-task=1', '--input=none'];

      const rounds: { readonly ours: number; readonly raw: number }[] = [];
      const atAgent: number[] = [];
      for (let n = 0; n < Math.ceil(STEPS / divisor); n += 1) {
        const raw = await timed(() => command('srun', ...bare, 'true'));
        rounds.push({ ours: await timed(() => step(client, taskId, 'run', ['true'])), raw });
        atAgent.push(await timed(() => step(client, taskId, 'exec', ['true'])));
      }
      const output: { readonly ours: number; readonly raw: number }[] = [];
      const large = ['head', '-c', String(OUTPUT_BYTES), '/dev/zero'];
      const rate = (ms: number): number => OUTPUT_BYTES / 1e6 / (ms / 1000);
      for (let n = 0; n < Math.ceil(OUTPUTS / divisor); n += 1) {
        const pipeline = `srun ${[...bare, ...large].join(' ')} | wc -c`;
        const raw = rate(await timed(() => command('sh', '-c', pipeline)));
        output.push({ ours: rate(await timed(() => step(client, taskId, 'run', large))), raw });
      }
      answered(await client.cancel(taskId));
      const over = async (): Promise<boolean> => answered(await client.get(taskId)).phase !== 'Leased';
      await until('the session is over', over, READY_MS);
      return [
        { what: 'a step on the nodes, asked to ended', unit: 'ms', aim: null, ...compared(rounds) },
        {
          what: 'a step at an agent, asked to ended',
          unit: 'ms',
          ours: median(atAgent),
          raw: null,
          ratio: null,
          aim: null,
          note: spread(atAgent, 'steps'),
        },
        { what: 'output of a step, at the client', unit: 'MB/s', aim: null, ...compared(output) },
      ];
    } finally {
      client.close();
      await worker.stop();
      await gateway.stop();
    }
  },
};

async function timed(run: () => Promise<unknown>): Promise<number> {
  const startedMs = performance.now();
  await run();
  return performance.now() - startedMs;
}

async function step(client: CoordinatorClient, taskId: TaskId, mode: 'run' | 'exec', argv: string[]): Promise<void> {
  const stepId = StepId.parse(`step_${uniquePart(Date.now(), systemRandom)}`);
  const common = { stepId, argv, timeLimitS: null, outputLimitBytes: OUTPUT_LIMIT_MAX_BYTES };
  const request: StepRequest =
    mode === 'run'
      ? { mode, ...common, nodes: null, tasks: null, cpusPerTask: null }
      : { mode, ...common, rank: 0, stdin: false };
  answered(await client.requestStep(taskId, request));
  const have = { stdout: 0, stderr: 0 };
  for (;;) {
    const given = answered(await client.stepOutput(taskId, stepId, { ...have, waitMs: 10_000 }));
    for (const { stream, offset, data } of given.pieces) have[stream] = offset + Buffer.byteLength(data, 'base64');
    if (given.end === null) continue;
    if (given.end.exitCode === 0) return;
    throw new Error(`the step: ${JSON.stringify(given.end)}`);
  }
}
