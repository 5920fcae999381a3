import { describe, expect, jest, test } from '@jest/globals';
import { Coordinator } from '../../src/coordinator/service.js';
import { MemoryEventStore } from '../../src/events/memory-store.js';
import { casesOf, recording, sweep } from '../support/sweep.js';
import { SweepWorld, type Story } from '../support/sweep-world.js';
import { SeededRandom } from '../support/seeded-random.js';

// Hundreds of lives of a task, on a machine that may be busy.
jest.setTimeout(300_000);

/** What the coordinator has at the end, and what the backend has. */
interface End {
  readonly outcomes: readonly string[];
  readonly landed: readonly string[];
}

const STORIES: readonly (readonly [name: string, story: Story, end: End])[] = [
  [
    'submit, lease, report, result',
    { firstSubmission: 'answered', end: 'completes' },
    { outcomes: ['task.completed'], landed: ['Completed'] },
  ],
  [
    'a cancel',
    { firstSubmission: 'answered', end: 'cancelled' },
    { outcomes: ['task.cancelled'], landed: ['Cancelled'] },
  ],
  [
    'a lost job that is tried again',
    { firstSubmission: 'answered', end: 'lost' },
    { outcomes: ['task.lost', 'task.completed'], landed: ['Lost', 'Completed'] },
  ],
];

for (const [name, story, end] of STORIES) {
  const world = await recording(story);
  const cases = casesOf(world, ({ side }) => side === 'coordinator');
  test(`INV-12 ${name}: after any of ${String(cases.length)} failures of the coordinator's log nothing is lost and nothing is there twice`, async () => {
    const failures = await sweep(story, cases, async (swept) => {
      const { outcomes, landed, foreign } = await swept.summary();
      const isRight = JSON.stringify({ outcomes, landed }) === JSON.stringify(end) && foreign === 0;
      return isRight ? null : JSON.stringify({ outcomes, landed, foreign });
    });
    expect(failures).toEqual([]);
    expect(cases.length).toBeGreaterThanOrEqual(40);
  });
}

test('the stories append everything that a coordinator has to say, apart from what its clock alone brings about', async () => {
  const types = new Set<string>();
  for (const [, story] of STORIES) {
    for await (const { event } of (await recording(story)).logs.coordinator.readAll()) types.add(event.type);
  }
  expect([...types].sort()).toEqual([
    ...['task.cancelRequested', 'task.cancelled', 'task.completed', 'task.jobOpened', 'task.leased', 'task.lost'],
    ...['task.progressed', 'task.submitted'],
  ]);
});

describe('the log cut at every length', () => {
  for (const [name, story, end] of STORIES) {
    test(`INV-12 ${name}: a coordinator on the rest ends its task once, and leaves no job behind`, async () => {
      const length = await (await recording(story)).logs.coordinator.lastPosition();
      for (let cut = 0; cut <= length; cut += 1) {
        const world = await recording(story);
        const from = { world, worker: world.logs.worker, coordinator: world.logs.coordinator.cutAfter(cut) };
        const after = new SweepWorld(story, null, 'crashBefore', from);
        await after.settle();
        const { outcomes, landed } = await after.summary();
        const last = end.outcomes.at(-1);
        expect({ cut, ends: outcomes.filter((type) => type !== 'task.lost') }).toEqual({ cut, ends: [last] });
        expect(landed.filter((phase) => phase === 'Pending' || phase === 'Running')).toEqual([]);
      }
      expect(length).toBeGreaterThanOrEqual(6);
    });
  }

  test('INV-12 the same log gives the same tasks, from its start and from any checkpoint', async () => {
    const world = await recording({ firstSubmission: 'answered', end: 'lost' });
    const views = async (store: MemoryEventStore): Promise<unknown> => {
      const { clock } = world;
      const coordinator = await Coordinator.open({ store, clock, random: new SeededRandom(3) });
      const tasks = await coordinator.client.list({ id: 'v', name: 'v', role: 'viewer' }, { limit: 10 });
      await coordinator.close();
      return tasks;
    };
    const length = await world.logs.coordinator.lastPosition();
    for (let cut = 0; cut <= length; cut += 1) {
      const store = world.logs.coordinator.cutAfter(cut);
      const fromStart = await views(store);
      // Closing has saved a checkpoint; what comes after it is folded on top.
      expect(await views(store)).toEqual(fromStart);
    }
  });
});
