import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { z } from 'zod';
import type { TaskId } from '../../src/machines/vocabulary.js';
import { eventually } from '../support/wait.js';
import { Gateway } from './support/gateway.js';
import { accountedJobs } from './support/site.js';

const TASKS = 500;
/** Under a steady stream of ends at most one queue query a second is asked, and accounting's beside it. */
const ASKING_CALLS_PER_MINUTE_MAX = 130;

const StatusLine = z.object({
  message: z.literal('status'),
  inSeconds: z.number(),
  calls: z.record(z.string(), z.number()),
});

describe('many tasks on a real cluster', () => {
  let gateway: Gateway;
  const startedAtMs = Date.now();
  beforeAll(async () => {
    gateway = await Gateway.start();
  }, 60_000);
  afterAll(() => gateway.stop());

  test('500 tasks give 500 results from 500 jobs, asked for with calls that do not grow with their number', async () => {
    const ids: TaskId[] = [];
    for (let i = 0; i < TASKS; i += 1) ids.push(await gateway.submit('smoke', { message: String(i), sleep: 1 }));
    for (const [i, id] of ids.entries()) {
      expect(await gateway.ended(id, 300_000)).toMatchObject({ phase: 'Completed' });
      expect(await gateway.result(id)).toMatchObject({ message: String(i) });
    }
    const ours = await jobNames(gateway);
    expect(ours.size).toBe(TASKS);
    // Accounting hears of an end a little later than the queue.
    const rows = await eventually(async () => {
      const found = (await accountedJobs(startedAtMs)).filter(({ name }) => ours.has(name));
      return found.length >= TASKS ? found : null;
    }, 30_000);
    expect(rows).toHaveLength(TASKS);
    const lines = statusLines(gateway.worker.log());
    expect(lines.length).toBeGreaterThan(0);
    const perMinute = lines.map(
      ({ calls, inSeconds }) => (((calls['squeue'] ?? 0) + (calls['sacct'] ?? 0)) * 60) / inSeconds,
    );
    process.stdout.write(`squeue and sacct calls per minute, in spans of 5 s: ${perMinute.join(', ')}\n`);
    const meanPerMinute = perMinute.reduce((sum, one) => sum + one, 0) / perMinute.length;
    expect(meanPerMinute).toBeLessThanOrEqual(ASKING_CALLS_PER_MINUTE_MAX);
  }, 600_000);
});

/** What the jobs of this worker are called at the cluster. */
async function jobNames(gateway: Gateway): Promise<ReadonlySet<string>> {
  const log = await gateway.expectOk('events', 'export', '--state-dir', gateway.workerState);
  return new Set([...log.matchAll(/"token":"([0-9a-z]{26})"/g)].map(([, token]) => `oc-${token ?? ''}`));
}

function statusLines(log: string): readonly z.infer<typeof StatusLine>[] {
  return log.split('\n').flatMap((line) => {
    if (!line.includes('"message":"status"')) return [];
    return [StatusLine.parse(JSON.parse(line))];
  });
}
