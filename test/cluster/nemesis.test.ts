import { afterAll, beforeAll, describe, expect, test } from '@jest/globals';
import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { z } from 'zod';
import type { TaskView } from '../../src/coordinator/api.js';
import type { TaskId } from '../../src/machines/vocabulary.js';
import { SeededRandom } from '../support/seeded-random.js';
import { Gateway } from './support/gateway.js';
import { harm, lossySbatch, pause, tidyUp, type Outage } from './support/nemesis.js';
import { accountedJobs, asAdmin, ctl } from './support/site.js';

/** How long harm is done; `npm run test:nemesis -- MINUTES` sets it. */
const MINUTES = Number(process.env['SLURM_TEST_NEMESIS_MINUTES'] ?? '3');
const SEED = Number(process.env['SLURM_TEST_NEMESIS_SEED'] ?? '1');
/** After the last harm everything has to settle within this, ms: a lost submission takes a minute or two to disprove. */
const SETTLE_MS = 8 * 60_000;
/** A poll that was answered before an outage may still be being recorded, ms. */
const EDGE_MS = 1_500;

/** Echoes its message; each run leaves a line in a ledger that nobody cleans up: what really was done. */
const SCRIPT = `#!/bin/sh
ledger=$(dirname "$OPEN_COMPUTE_DIRECTORY")/../ledger
echo "$OPEN_COMPUTE_JOB_ID $SLURM_JOB_ID" >>"$ledger"
sleep "$(awk -F: '{ gsub(/[^0-9]/, "", $3); print $3 }' "$1")"
message=$(awk -F'"' '{ print $4 }' "$1")
printf '{"message":"%s"}' "$message" >"$2.new" && mv "$2.new" "$2"
`;

const LoggedEvent = z.object({ recordedAtMs: z.number(), event: z.object({ type: z.string() }) });
const PHASE_CHANGES = new Set([
  'job.observed',
  'completion.reported',
  'loss.noted',
  'loss.confirmed',
  'submission.found',
]);

describe('a nemesis on a real cluster', () => {
  let gateway: Gateway;

  beforeAll(async () => {
    await ctl('conf', 'MinJobAge', '2');
    await ctl('conf', 'MaxJobId', '400');
    const realSbatch = (await asAdmin('sh', '-c', 'command -v sbatch')).trim();
    gateway = await Gateway.start({
      clusterToml: '[cluster]\nname = "test"\n\n[profiles.ledger]\nscript = "ledger.sh"\n',
      scripts: { 'ledger.sh': SCRIPT },
      programs: { sbatch: lossySbatch(realSbatch) },
    });
  }, 120_000);
  afterAll(async () => {
    await gateway.stop();
    await ctl('conf', 'MaxJobId', '');
    await ctl('conf', 'MinJobAge', '300');
    await ctl('reset');
  }, 180_000);

  test(
    `${String(MINUTES)} minutes of harm: no task lost, none done twice, no phase changed while nobody could be asked`,
    async () => {
      const startedAtMs = Date.now();
      const chance = new SeededRandom(SEED);
      const untilMs = startedAtMs + MINUTES * 60_000;
      const accepted = new Map<TaskId, string>();
      const submitting = submitSteadily(accepted, untilMs, new SeededRandom(SEED + 1));
      const { injected, outages } = await harm(gateway, chance, untilMs);
      await submitting;
      await tidyUp();

      const tasks = new Map<TaskId, TaskView>();
      for (const id of accepted.keys()) tasks.set(id, await gateway.ended(id, SETTLE_MS));
      const wrong: string[] = [];
      let results = 0;
      for (const [id, task] of tasks) {
        if (task.phase !== 'Completed') {
          wrong.push(`${id}: ${task.phase} (${task.reason ?? ''}: ${task.detail})`);
          continue;
        }
        results += 1;
        expect(await gateway.result(id)).toEqual({ message: accepted.get(id) });
      }
      const doneTwice = workDoneTwice(readFileSync(join(gateway.directory, 'ledger'), 'utf8'));
      const rows = await accountedJobs(startedAtMs);
      const completed = rows.filter(({ state }) => state === 'COMPLETED').map(({ name }) => name);
      const duplicates = completed.length - new Set(completed).size;
      const changes = await phaseChangesDuring(outages);
      const lossy = ['after-landing', 'before-landing', 'half-an-answer']
        .map((kind) => `answer lost ${kind}: ${String(linesOf(join(gateway.programsDir, `lost-${kind}`)))}`)
        .join(', ');
      process.stdout.write(
        `nemesis, ${String(MINUTES)} min: tasks ${String(tasks.size)}, results ${String(results)}, duplicates ${String(duplicates + doneTwice.length)}, ` +
          `lost ${String(wrong.length)}, phase changes during outages ${String(changes.length)}, ` +
          `faults: ${Object.entries(injected)
            .map(([kind, count]) => `${kind}: ${String(count)}`)
            .join(', ')}, ${lossy}\n`,
      );
      expect(doneTwice).toEqual([]);
      expect(duplicates).toBe(0);
      expect(changes).toEqual([]);
      expect(wrong).toEqual([]);
      expect(tasks.size).toBeGreaterThan(MINUTES * 10);
    },
    MINUTES * 60_000 + SETTLE_MS + 180_000,
  );

  /** One task about every second; one that the coordinator did not answer is sent again under its own key. */
  async function submitSteadily(accepted: Map<TaskId, string>, untilMs: number, chance: SeededRandom): Promise<void> {
    for (let i = 0; Date.now() < untilMs; i += 1) {
      const message = `task-${String(i)}`;
      const payload = { profile: 'ledger', parameters: { message, seconds: chance.int(0, 6) } };
      for (;;) {
        const answer = await gateway.client.submit({ kind: 'training', payload }, `nemesis-${String(i)}`);
        if (answer.kind === 'answered') {
          accepted.set(answer.value.taskId, message);
          break;
        }
        if (answer.kind !== 'unreachable') throw new Error(`submit: ${JSON.stringify(answer)}`);
        await pause(500);
      }
      await pause(chance.int(200, 1500));
    }
  }

  async function phaseChangesDuring(outages: readonly Outage[]): Promise<readonly string[]> {
    const log = await gateway.expectOk('events', 'export', '--state-dir', gateway.workerState);
    return log
      .split('\n')
      .filter((line) => line !== '')
      .filter((line) => {
        const { recordedAtMs, event } = LoggedEvent.parse(JSON.parse(line));
        if (!PHASE_CHANGES.has(event.type)) return false;
        return outages.some(({ fromMs, toMs }) => recordedAtMs > fromMs + EDGE_MS && recordedAtMs < toMs);
      });
  }
});

/** Jobs of ours whose work was done by two jobs of the cluster. A requeue runs again under the same id. */
function workDoneTwice(ledger: string): readonly string[] {
  const ids = new Map<string, Set<string>>();
  for (const line of ledger.split('\n').filter(Boolean)) {
    const [job = '', id = ''] = line.split(' ');
    ids.set(job, (ids.get(job) ?? new Set()).add(id));
  }
  return [...ids].filter(([, of]) => of.size > 1).map(([job]) => job);
}

const linesOf = (file: string): number => (existsSync(file) ? readFileSync(file, 'utf8').split('\n').length - 1 : 0);
