import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import { CoordinatorClient } from '../src/coordinator/client.js';
import { systemClock } from '../src/runtime/clock.js';
import { systemRandom } from '../src/runtime/random.js';
import type { Bench } from './support/bench.js';
import { command, writeProfile } from './support/cluster.js';
import { atMost, median, short } from './support/figures.js';
import { answered, Gateway } from './support/services.js';

const TASKS = 20;
const PLAIN = 5;

/** Its last act is to write down when that was, ns since the epoch. */
const STAMPING_PROFILE = ['sleep "$(sed "s/[^0-9.]//g" "$1")"', 'printf \'{"endedNs":"%s"}\\n\' "$(date +%s%N)" >"$2"'];
const Stamp = z.object({ endedNs: z.string().transform((text) => Number(BigInt(text) / 1000n) / 1000) });

/** From the end of a job's own script to the client that holds the result. */
export const delivery: Bench = {
  name: 'delivery',
  summary: "a job's end to the client holding the result, at default settings",
  needsCluster: true,
  run: async ({ directory, app, divisor }) => {
    const gateway = await Gateway.start(app, directory);
    const profile = writeProfile(directory, 'stamp.sh', STAMPING_PROFILE);
    const worker = await gateway.startWorker(['--training-profile', `stamp=${profile}`]);
    const client = new CoordinatorClient(await gateway.credentials('submitter', 'client'), {
      clock: systemClock,
      random: systemRandom,
    });
    try {
      const delays: number[] = [];
      for (let n = 0; n < Math.ceil(TASKS / divisor); n += 1) delays.push(await oneTask(client, n));
      const plain: number[] = [];
      for (let n = 0; n < Math.ceil(PLAIN / divisor); n += 1) plain.push(await onePlain(directory, profile, n));
      const [ours, raw] = [median(delays), median(plain)];
      return [
        {
          what: `a job's end to the client holding the result, median of ${delays.length}`,
          unit: 's',
          ours,
          raw,
          ratio: ours / raw,
          aim: atMost(0.5),
          note: `${short(Math.min(...delays))}–${short(Math.max(...delays))}; raw: sbatch --wait returns, median of ${plain.length}`,
        },
      ];
    } finally {
      client.close();
      await worker.stop();
      await gateway.stop();
    }
  },
};

/** Seconds; each job ends at another point of the worker's rhythm. */
const sleepS = (n: number): string => (1 + (n % 20) * 0.07).toFixed(2);

async function oneTask(client: CoordinatorClient, n: number): Promise<number> {
  const payload = { profile: 'stamp', parameters: { s: Number(sleepS(n)) } };
  const { taskId } = answered(await client.submit({ kind: 'training', payload }));
  const given = new AbortController();
  for await (const item of client.watchTask(taskId, given.signal)) {
    if (item.kind !== 'change') throw new Error(`the watch: ${JSON.stringify(item)}`);
  }
  const { result } = answered(await client.result(taskId));
  return (Date.now() - Stamp.parse(result).endedNs) / 1000;
}

async function onePlain(directory: string, profile: string, n: number): Promise<number> {
  const [input, result] = [join(directory, `plain-${n}.in`), join(directory, `plain-${n}.out`)];
  await command('sh', '-c', `echo ${sleepS(n)} >'${input}'`);
  await command('sbatch', '--wait', '--output=/dev/null', profile, input, result);
  return (Date.now() - Stamp.parse(JSON.parse(readFileSync(result, 'utf8'))).endedNs) / 1000;
}
